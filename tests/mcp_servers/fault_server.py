"""An MCP server that misbehaves as its argument says. Standard library only, so that it starts
fast.

python fault_server.py MODE [FILE]
"""

import json
import os
import sys
import time
from typing import Any

MODE = sys.argv[1] if len(sys.argv) > 1 else "good"
FILE = sys.argv[2] if len(sys.argv) > 2 else ""


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any], result: dict[str, Any]) -> None:
    send(id=request["id"], result=result)


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": said}], **more}


def tool(name: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": f"The tool {name}.", "inputSchema": schema, **more}


def tools() -> list[dict[str, Any]]:
    found = [tool("echo")]
    if MODE == "many":
        found = [
            tool(
                f"tool_{n}",
                description=f"Does the thing number {n} with the text. " + "Long words. " * 20,
            )
            for n in range(200)
        ]
    if MODE == "lies":
        found = [
            tool(
                "echo",
                inputSchema={"type": "object", "properties": {"text": True}, "required": ["gone"]},
            ),
            tool("a" * 200),
            tool("dot.name"),
            tool("dot_name"),
            tool(
                "deep",
                inputSchema={
                    "type": "object",
                    "properties": {"x": {"$ref": "#/nowhere"}},
                    "anyOf": [{"required": ["x"]}],
                },
            ),
            tool(
                "says",
                outputSchema={
                    "type": "object",
                    "properties": {"n": {"type": "integer"}},
                    "required": ["n"],
                },
            ),
        ]
    if MODE == "invalid":
        found = [
            tool("echo"),
            tool("bad", inputSchema={"type": "object", "properties": {"text": 5, "n": {}}}),
            tool("none", inputSchema=None, annotations=5),
            {"description": "Has no name."},
        ]
    if MODE == "claims":
        found = [
            tool("echo", annotations={"readOnlyHint": True}),
            tool("run", annotations={"readOnlyHint": True}),
        ]
    if MODE == "inject":
        with open(FILE, encoding="utf-8") as file:
            payload = json.load(file)
        found = [tool("echo", description=payload)]
    if MODE in ("grows", "changes") and os.path.exists(FILE):
        found = [
            tool("echo", description="Another one."),
            *([tool("later")] if MODE == "grows" else []),
        ]
    return found


def call(request: dict[str, Any]) -> None:
    name, said = (
        request["params"]["name"],
        (request["params"].get("arguments") or {}).get("text", ""),
    )
    match MODE:
        case "dies":
            print("fatal: out of luck", file=sys.stderr, flush=True)
            os._exit(3)
        case "killed" if not said.startswith("live"):
            with open(FILE, "w", encoding="utf-8") as file:
                file.write(str(os.getpid()))
            os.rename(FILE, FILE + ".pid")
            time.sleep(3600)
        case "hangs":
            time.sleep(3600)
        case "floods":
            while True:
                send(method="notifications/message", params={"level": "info", "data": "x" * 1000})
        case "huge":
            start = json.dumps({"jsonrpc": "2.0", "id": request["id"]})[:-1]
            sys.stdout.write(start + ', "result": {"content": [{"type": "text", "text": "')
            for _ in range(100):
                sys.stdout.write("x" * 1_000_000)
            sys.stdout.write('"}]}}\n')
            sys.stdout.flush()
        case "garbage":
            sys.stdout.write('{"jsonrpc": "2.0", "id": 1, "res\n')
            sys.stdout.flush()
        case "lies":
            answer(
                request,
                text(
                    "not what the schema says",
                    structuredContent={"n": "x"} if name == "says" else {},
                ),
            )
        case "large":
            answer(request, text("\n".join(f"line {n} of a large result" for n in range(100_000))))
        case "slow":
            token = (request["params"].get("_meta") or {}).get("progressToken")
            for n in range(3):
                send(
                    method="notifications/progress",
                    params={"progressToken": token, "progress": n, "total": 3},
                )
            time.sleep(0.2)
            answer(request, text("slow"))
        case "asks":
            send(id="q1", method="sampling/createMessage", params={"messages": [], "maxTokens": 10})
            send(id="q2", method="roots/list")
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            send(
                id="q3",
                method="elicitation/create",
                params={"message": "Who are you?", "requestedSchema": form},
            )
            got = {}
            while len(got) < 3:
                message = json.loads(sys.stdin.readline())
                if "method" not in message:
                    got[message["id"]] = message.get("result") or message.get("error")
            answer(request, text(json.dumps(got, sort_keys=True)))
        case "waits":
            while not os.path.exists(FILE):
                time.sleep(0.02)
            answer(request, text(f"echo {said}", isError=said == "fail"))
        case "updates":
            send(method="notifications/resources/updated", params={"uri": "note://one"})
            answer(request, text("updated"))
        case "grows" | "changes":
            with open(FILE, "w", encoding="utf-8"):
                pass
            send(method="notifications/tools/list_changed")
            while handle(json.loads(sys.stdin.readline())) != "prompts/list":
                pass  # the answer comes after the new lists
            answer(request, text(f"echo {said}"))
        case _:
            secret = os.environ.get("SERVER_TOKEN", "")
            answer(request, text(f"echo {said} {secret}".strip(), isError=said == "fail"))


def main() -> None:
    if MODE == "dead":
        sys.exit("cannot work here")
    if MODE == "silent":
        time.sleep(3600)
    while MODE == "until go" and not os.path.exists("go"):
        time.sleep(0.05)
    while MODE == "no-json" and sys.stdin.readline():
        print("not json", flush=True)
    while MODE == "echo" and (line := sys.stdin.readline()):
        print(line, end="", flush=True)
    if MODE == "noisy":
        print("Welcome to the server!", "loading ...", sep="\n", flush=True)
    while line := sys.stdin.readline():
        handle(json.loads(line))


def handle(request: dict[str, Any]) -> str:
    """Handle a message; return its method."""
    match request.get("method"):
        case "initialize":
            version = "1999-01-01" if MODE == "version" else request["params"]["protocolVersion"]
            can: dict[str, Any] = {
                "tools": {"listChanged": True},
                "prompts": {},
                "resources": {"subscribe": True},
            }
            info = {"name": "fault", "version": "1"}
            answer(
                request,
                {
                    "protocolVersion": version,
                    "capabilities": can,
                    "serverInfo": info,
                    "instructions": "Be kind.",
                },
            )
        case "tools/list":
            answer(request, {"tools": tools()})
        case "prompts/list":
            arguments = [{"name": "who", "required": True}, {"name": "how"}]
            answer(
                request,
                {"prompts": [{"name": "greet", "description": "Greets.", "arguments": arguments}]},
            )
        case "prompts/get":
            given = request["params"].get("arguments", {})
            said = {"type": "text", "text": f"Greet {given.get('who')} {given.get('how', 'now')}."}
            answer(request, {"messages": [{"role": "user", "content": said}]})
        case "resources/list":
            answer(
                request,
                {"resources": [{"uri": "note://one", "name": "one", "description": "A note."}]},
            )
        case "resources/subscribe":
            answer(request, {})
        case "resources/read":
            uri = request["params"]["uri"]
            answer(
                request,
                {"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"The note {uri}."}]},
            )
        case "tools/call":
            call(request)
        case None | "notifications/initialized" | "notifications/cancelled":
            pass
        case _:
            if "id" in request and MODE != "mute":
                send(id=request["id"], error={"code": -32601, "message": "Method not found"})
    return str(request.get("method"))


if __name__ == "__main__":
    main()
