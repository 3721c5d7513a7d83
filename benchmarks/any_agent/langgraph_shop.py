"""The agent of examples/shop on LangGraph, as a service: one process plays all rollouts."""

from __future__ import annotations

import json
import sys
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import ToolNode, create_react_agent


def tool(name: str, schema: dict[str, object]) -> StructuredTool:
    """Return a tool of the shop, described as the agents SDK describes it."""

    def look_up(item: str) -> str:
        return str(zlib.crc32(f"{name} {item}".encode()) % 90 + 10)

    description = f"The {name} of an item."
    return StructuredTool.from_function(
        look_up, name=name, description=description, args_schema=schema
    )


class Rollout(BaseHTTPRequestHandler):
    """Plays the agent on the case of a request."""

    tools: tuple[StructuredTool, ...] = ()
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session = given["session"]
        model = ChatOpenAI(
            model=session["model"],
            base_url=session["base_url"],
            api_key=session["api_key"],
            max_retries=0,
        )
        tools = ToolNode(list(self.tools), handle_tool_errors=True)
        agent = create_react_agent(model, tools, prompt="Answer with the right tool.")
        try:
            last = agent.invoke({"messages": given["case"]["messages"]})["messages"][-1]
            status, answer = 200, json.dumps({"answer": last.content}).encode()
        except Exception as error:
            status, answer = 500, f"{type(error).__name__}: {error}".encode()
        self.send_response(status)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None: ...


class Server(ThreadingHTTPServer):
    request_queue_size = 256  # rollouts arrive in bursts


if __name__ == "__main__":
    Rollout.tools = tuple(tool(name, schema) for name, schema in json.loads(sys.argv[1]).items())
    server = Server(("127.0.0.1", 0), Rollout)
    print(server.server_port, flush=True)
    server.serve_forever()
