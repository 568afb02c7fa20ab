"""The page for browsers as a client without a browser asks for it: what is signed, and what is answered."""

import hashlib
import hmac
import http.client
import json
import re
import socket


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Page:
    """A user's page, by the address that `reseat page` prints."""

    def __init__(self, url):
        self.url = url
        self.port, self.user, self.secret = re.fullmatch(
            r"http://127\.0\.0\.1:(\d+)/#(\d+)\.([0-9a-f]{32})", url).groups()
        self.host = f"127.0.0.1:{self.port}"
        self.challenge = ""

    def http(self, method, path, body=None, headers=None):
        """The status, the headers and the body of an answer; (0, ...): the connection was closed without one."""
        connection = http.client.HTTPConnection("127.0.0.1", int(self.port), timeout=30)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except ConnectionError:
            return 0, {}, b""
        finally:
            connection.close()

    def sign(self, body, host=None, secret=None, challenge=None):
        text = f"{self.challenge if challenge is None else challenge}\n{host or self.host}\n".encode() + body
        mac = hmac.new((secret or self.secret).encode(), text, hashlib.sha256).hexdigest()
        return f"Reseat {self.user}:{mac}"

    def headers(self, body, **more):
        made = {"Host": self.host, "Origin": f"http://{self.host}", "Content-Type": "application/json",
                "Authorization": self.sign(body), **{name.replace("_", "-"): value for name, value in more.items()}}
        return {name: value for name, value in made.items() if value is not None}

    def learn(self):
        """The challenge, which whoever asks is told."""
        status, _, body = self.http("POST", "/agent", b"{}", self.headers(b"{}"))
        assert status == 401, status
        self.challenge = json.loads(body)["challenge"]

    def post(self, request, **more):
        """The status of a signed request, and the lines of the answer."""
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        status, _, text = self.http("POST", "/agent", body, self.headers(body, **more))
        return status, [json.loads(line) for line in text.splitlines()]

    def ask(self, request):
        status, lines = self.post(request)
        assert status == 200, (status, lines)
        return lines[-1]
