"""Post JSON to an address that the user has configured, such as a hook. Nothing else is fetched here."""

import asyncio
from collections.abc import Sequence


async def post_json(
    url: str, body: bytes, headers: Sequence[tuple[str, str]], limit_s: float, bytes_max: int
) -> tuple[int, bytes, str]:
    """Post `body`; return (status, content, '') or (0, b"", why there is no answer).

    Redirects are not followed, and no proxy of the environment is used. Never raises for what the server does.
    """
    import httpx2

    said = bytearray()
    try:
        async with (
            asyncio.timeout(limit_s),
            httpx2.AsyncClient(follow_redirects=False, trust_env=False, timeout=limit_s) as client,
            client.stream(
                "POST", url, content=body, headers=[("content-type", "application/json"), *headers]
            ) as answer,
        ):
            async for piece in answer.aiter_bytes():
                said += piece
                if len(said) > bytes_max:
                    return 0, b"", f"it answered with more than {bytes_max:,} bytes"
            return answer.status_code, bytes(said), ""
    except TimeoutError:
        return 0, b"", f"no answer within {limit_s:g} s"
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as error:
        return 0, b"", f"it cannot be reached ({error or type(error).__name__})"
