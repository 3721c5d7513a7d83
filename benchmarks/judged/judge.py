"""`python judge.py PORT`: a service that replies whether a number is even."""

import socketserver
import sys


class Judge(socketserver.StreamRequestHandler):
    def handle(self):
        line = self.rfile.readline().strip()
        if line:
            self.wfile.write(b"even\n" if int(line) % 2 == 0 else b"odd\n")


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128


with Server(("127.0.0.1", int(sys.argv[1])), Judge) as server:
    server.serve_forever()
