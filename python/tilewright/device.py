"""Machines that measure for a tuning job, as the job sees them.

A device is anything with the methods of `Device`; the tuner gives each a thread of its own.  What comes back is checked
by the tuner, so that a device that lies costs no more than one that dies.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from typing import Any, Protocol

from .device_wire import VERSION, Channel, Key, Refused, digest, parse_address
from .error import Error

CONNECT_SECONDS = 5.0
BUSY_SECONDS = 5.0  # that an earlier job, or this one's last connection, has to leave


class Device(Protocol):
    """Every method raises an exception, of any kind, when the device is not to be had.

    A candidate during which devices are lost is under suspicion, but for exceptions whose `is_nonsense` is true.
    """

    name: str

    def reach(self) -> str:
        """Connects, anew if need be.  What the machine is, as `tw-measure --facts` says it."""

    def call(self, parts: Sequence[bytes], most_bytes: int, seconds: float) -> bytes:
        """A request there and its answer back, within about so many seconds and no longer than that."""

    def interrupt(self) -> None:
        """From another thread: ends a call."""


class Lost(Exception):
    """The device is not to be had; says why."""


class Nonsense(Lost):
    """It answers what no device does, whatever it was asked."""

    is_nonsense = True


class TcpDevice:
    """A machine where `tw device serve` runs."""

    def __init__(self, address: str, key: Key):
        self.host, self.port = parse_address(address)
        self.name = f"tcp://{self.host}:{self.port}"
        self.key = key
        self.channel: Channel | None = None
        self.is_interrupted = False

    def reach(self) -> str:
        give_up = time.monotonic() + BUSY_SECONDS
        while True:
            self.close()
            if self.is_interrupted:
                raise Lost("the job ended")
            try:
                connection = socket.create_connection((self.host, self.port), CONNECT_SECONDS)
                try:
                    channel = self.channel = self.key.secure(connection, False, CONNECT_SECONDS)
                    channel.send({"kind": "hello", "version": VERSION}, seconds=CONNECT_SECONDS)
                    head, _ = channel.receive(seconds=CONNECT_SECONDS)
                except BaseException:
                    connection.close()
                    raise
            except (OSError, Refused, ValueError) as error:
                self.close()
                raise Lost(explain(error)) from None
            if head["kind"] == "facts":
                return json.dumps(head.get("facts"))
            self.close()
            if head["kind"] != "busy":
                raise Lost(str(head.get("reason", "it says nothing that a job understands"))[:300])
            if time.monotonic() > give_up:
                raise Lost("it is busy with another job")
            time.sleep(0.2)

    def call(self, parts: Sequence[bytes], most_bytes: int, seconds: float) -> bytes:
        if self.channel is None:
            raise Lost("it is not connected")
        deadline = time.monotonic() + seconds
        try:
            names = [digest(part) for part in parts]
            self.channel.send({"kind": "measure", "parts": names, "most_bytes": most_bytes, "seconds": seconds})
            head, _ = self.channel.receive(seconds=min(CONNECT_SECONDS, seconds))
            wanted = head.get("parts")
            if head["kind"] != "need" or not isinstance(wanted, list) or not set(wanted) <= set(range(len(parts))):
                raise Refused("it asks for what is not there")
            self.channel.send({"kind": "parts"}, [parts[i] for i in sorted(set(wanted))], deadline - time.monotonic())
            head, sent = self.channel.receive(most_bytes, deadline - time.monotonic())
        except Refused as error:
            self.close()
            raise Nonsense(str(error)) from None
        except (OSError, ValueError, TypeError) as error:
            self.close()
            raise Lost(explain(error)) from None
        if head["kind"] == "failed":
            raise Lost(str(head.get("reason"))[:300])
        if head["kind"] != "answer" or len(sent) != 1:
            raise Nonsense("it answers something else")
        return sent[0]

    def interrupt(self) -> None:
        self.is_interrupted = True
        self.close()

    def close(self) -> None:
        channel, self.channel = self.channel, None
        if channel is not None:
            channel.close()


def explain(error: Exception) -> str:
    text = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in text or "ALERT" in text or "HANDSHAKE" in text:
        return "it does not hold the same key, or is no `tw device serve`"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    return getattr(error, "strerror", None) or text or type(error).__name__


def open_devices(addresses: Sequence[str], key_file: str | os.PathLike[str] | None) -> list[TcpDevice]:
    """tcp://HOST:PORT each; one key for all."""
    if key_file is None:
        raise Error(
            "TW1101", "devices need a key file\nhelp: `tw device key KEY` makes one; both sides take it by --key-file"
        )
    key = Key(key_file)
    devices = [TcpDevice(address, key) for address in addresses]
    if len({device.name for device in devices}) < len(devices):
        raise Error("TW1101", "a device is named twice")
    return devices


def facts_of(device: Device) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(device.reach())
        return facts
    except Lost as error:
        raise Error("TW1501", f"{device.name}: {error}") from None
    finally:
        device.interrupt()
