"""A receiver that tests kill: it records each request in a file, and then answers 200.

Run as a program with a port and a file. A record is one line of JSON.
"""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


def serve(port: int, file: str) -> None:
    record = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            request = [self.requestline, *map(list, self.headers.items())], body.decode()
            os.write(record, json.dumps(request).encode() + b"\n")
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    HTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
