"""Breaks per 100 requests of both profiles over random sessions: `python -m tests.context.count_breaks`."""

from tests.context.random_session import RandomSession

WINDOWS = (4_000, 12_000, 40_000, 200_000)


def main() -> None:
    for profile in ("default", "seed"):
        for window in WINDOWS:
            walks = [RandomSession(seed, profile, window).run() for seed in range(12)]
            requests = sum(sent.request.purpose == "turn" for walk in walks for sent in walk.sent)
            breaks = sum(walk.state.breaks for walk in walks)
            print(
                f"{profile:<8} window {window:>7}: {100 * breaks / requests:5.1f} breaks per 100 requests ({requests})"
            )


if __name__ == "__main__":
    main()
