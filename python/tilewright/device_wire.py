"""Messages between a tuning job and the machines that measure for it.

TLS 1.3 with one certificate of their own, which both sides hold and each demands of the other: who has not the key file
can neither ask nor answer, nor read or change what passes.  Within it a message is the length of its head, the head as
JSON, and raw parts whose sizes the head lists.  Lengths are checked before anything is read, and a deadline bounds
every message as a whole.  Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import ssl
import stat
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .error import Error

VERSION = 1
MOST_HEAD_BYTES = 1 << 16
MOST_PARTS = 16
CHUNK = 1 << 20


class Refused(Exception):
    """What the other side sends is none of its messages."""


def make_key(path: str | os.PathLike[str]) -> None:
    """Writes a new key file, which nobody else may read: a private key and its certificate."""
    command = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-days", "36500", "-subj", "/CN=tilewright"]
    try:
        made = subprocess.run([*command, "-keyout", "-", "-out", "-"], capture_output=True, text=True, check=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(made.stdout)
    except FileExistsError:
        raise Error("TW1001", f"{path} is there already\nhelp: remove it, or use it") from None
    except (OSError, subprocess.CalledProcessError) as error:
        raise Error("TW1001", f"{path} cannot be made by openssl: {error}") from None


class Key:
    """A key file, checked."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        try:
            mode = self.path.stat().st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise Error("TW1001", f"{path} can be read by others than its owner\nhelp: chmod 600 {path}")
            text = self.path.read_text()
            begin = text.index("-----BEGIN CERTIFICATE-----")
            self.certificate = ssl.PEM_cert_to_DER_cert(text[begin:].strip())
            self.context(True), self.context(False)
        except (OSError, ValueError) as error:
            raise Error(
                "TW1001",
                f"{path} is no key file: {error}\nhelp: `tw device key {path}` makes one; copy it to both sides",
            ) from None

    def context(self, is_server: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.path)
        context.load_verify_locations(self.path)
        return context

    def secure(self, connection: socket.socket, is_server: bool, seconds: float) -> Channel:
        """Once both sides have shown that they hold the key.  Refused, OSError."""
        connection.settimeout(seconds)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        secured = self.context(is_server).wrap_socket(connection, server_side=is_server)
        if secured.getpeercert(binary_form=True) != self.certificate:
            raise Refused("it holds another key")
        return Channel(secured)


class Channel:
    """One secured connection."""

    def __init__(self, connection: ssl.SSLSocket):
        self.connection = connection

    def close(self) -> None:
        """From any thread; what waits on it ends."""
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.connection.close()

    def send(self, head: dict[str, Any], parts: Sequence[bytes] = (), seconds: float = 10.0) -> None:
        text = json.dumps({**head, "sizes": [len(part) for part in parts]}).encode()
        deadline = time.monotonic() + seconds
        for block in (struct.pack(">I", len(text)) + text, *parts):
            view = memoryview(block)
            for start in range(0, len(view), CHUNK):
                self._bound(deadline)
                self.connection.sendall(view[start : start + CHUNK])

    def receive(self, most_bytes: int = 0, seconds: float = 10.0) -> tuple[dict[str, Any], list[bytes]]:
        """A message whose parts are together no longer than that.  Refused, OSError."""
        deadline = time.monotonic() + seconds
        length = struct.unpack(">I", self._read(4, deadline))[0]
        if length > MOST_HEAD_BYTES:
            raise Refused(f"a head of {length} bytes")
        try:
            head = json.loads(self._read(length, deadline))
            sizes = head["sizes"]
            is_message = isinstance(head["kind"], str) and all(type(size) is int and size >= 0 for size in sizes)
        except (ValueError, KeyError, TypeError, RecursionError):
            is_message = False
        if not is_message or len(sizes) > MOST_PARTS:
            raise Refused("no message")
        if sum(sizes) > most_bytes:
            raise Refused(f"{sum(sizes)} bytes, where at most {most_bytes} are expected")
        return head, [self._read(size, deadline) for size in sizes]

    def _bound(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time is over")
        self.connection.settimeout(left)

    def _read(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            self._bound(deadline)
            chunk = self.connection.recv(min(CHUNK, count - len(data)))
            if not chunk:
                raise ConnectionError("the connection ended")
            data += chunk
        return bytes(data)


def digest(part: bytes) -> str:
    return hashlib.sha256(part).hexdigest()


def parse_address(text: str, default_port: int | None = None) -> tuple[str, int]:
    """HOST:PORT, with or without tcp:// before it."""
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise Error("TW1101", f"{text} is no address\nhelp: write tcp://HOST:PORT")
    return host.strip("[]"), int(port)
