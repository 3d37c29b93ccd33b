"""A rate limiter in Redis that shares its permits with Redisson's RRateLimiter and with this crate.

It uses the scripts in this folder as lua/README.md documents them, and the standard library only. Run as a program,
`client.py PORT NAME [CLIENT_ID]` runs the calls that it reads, one a line, and prints what each returns.
"""
import hashlib, os, random, socket, struct, sys, time, uuid
from pathlib import Path

FOLDER = Path(__file__).parent
SHA1 = {name: sha1 for sha1, name in (line.split() for line in (FOLDER / "sha1.txt").read_text().splitlines())}
CALL_TIMEOUT, ATTEMPT_MS, CLOCK_STEP_MS = 3.0, 500, 1000


def assemble(name, part=None):
    """The text of a script, or of one part of it, with the files that it includes."""
    text, inside = "", None
    for line in (FOLDER / name).read_text().splitlines():
        words = line.split()
        if words[:1] != ["--!"]:
            text += line + "\n" if part in (None, inside) else ""
        elif words[1] == "include":
            text += assemble(*words[2:]) if part in (None, inside) else ""
        else:
            inside = words[2] if words[1] == "part" else None
    return text


class ServerError(Exception):
    """An error reply."""


class Redis:
    """One connection, opened when it is needed. A command whose reply is lost raises OSError."""

    def __init__(self, port, host="127.0.0.1"):
        self.address, self.file = (host, port), None

    def command(self, *words):
        try:
            if self.file is None:
                self.file = socket.create_connection(self.address, 1.0).makefile("rwb")
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            self.file.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
            self.file.flush()
            return self.reply()
        except OSError:
            self.file = None
            raise

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection was closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise ServerError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self.file.read(int(rest) + 2)[:-2] if rest != b"-1" else None
        return [self.reply() for _ in range(int(rest))] if kind == b"*" else rest

    def script(self, name, keys, args):
        try:
            return self.command("EVALSHA", SHA1[name], len(keys), *keys, *args)
        except ServerError as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
        script = assemble(name)
        assert hashlib.sha1(script.encode()).hexdigest() == SHA1[name], name
        return self.command("EVAL", script, len(keys), *keys, *args)


class Denied:
    def __init__(self, wait):
        self.wait = wait  # seconds until permits may be available


class Grant:
    def __init__(self, call_id, score, permits):
        self.call_id, self.score, self.permits = call_id, score, permits


class RateLimiter:
    def __init__(self, redis, name, client_id=None):
        beside = name if "{" in name else "{%s}" % name
        value, permits, own = beside + ":value", beside + ":permits", ":" + (client_id or str(uuid.uuid4()))
        self.redis, self.keys = redis, [name, value, value + own, permits, permits + own]
        self.refund_keys = self.keys + [beside + ":audit"]
        self.type, self.rate, self.sum_at, self.granted_at = 0, "", 0.0, 0.0

    def try_set_rate(self, rate, interval, type=0, keep_alive=0):
        return bool(self.redis.script("try_set_rate.lua", self.keys, [rate, interval, type, keep_alive]))

    def check(self, permits=1):
        """Takes the permits where they are available: a Grant or a Denied. Takes them once, however often it is sent."""
        call_id, end = os.urandom(16), time.monotonic() + CALL_TIMEOUT
        member = bytes([16]) + call_id + struct.pack("<I", permits)
        earlier = search_from = None  # the last deadline and the earliest score of the attempts that may have run
        while True:
            try:
                seconds, micros = self.redis.command("TIME")
                now = int(seconds) * 1000 + int(micros) // 1000
            except OSError:
                self.pause(0.01, end)
                continue
            rate = self.rate if time.monotonic() < self.sum_at else ""
            args = [now + ATTEMPT_MS, member, rate, permits, "", "1" if self.type else ""]
            if earlier:
                args += [0, "retry", earlier[0], search_from or earlier[1], earlier[0]]
            keys = self.keys[:1] + self.keys[1 + self.type :: 2]
            try:
                reply = self.redis.script("acquire.lua", keys, args)
            except OSError:  # it may have run
                first = earlier[1] if earlier else now - CLOCK_STEP_MS
                earlier, search_from = (now + ATTEMPT_MS, min(first, now - CLOCK_STEP_MS)), None
                self.pause(0.01, end)
                continue
            word = reply[len(reply) // 8 * 8 :]
            numbers = [int(number) for (number,) in struct.iter_unpack("<d", reply[: len(reply) // 8 * 8])]
            if word == b"type":
                self.type = numbers[1]
            elif word == b"early":
                self.pause(numbers[1] / 1000, end)
            elif word == b"more":
                search_from = numbers[1]
            elif word == b"" and len(numbers) > 1:
                return self.decide(call_id, permits, numbers)
            self.pause(0, end)  # again, or after the deadline of the attempt

    def pause(self, seconds, end):
        if time.monotonic() + seconds >= end:
            raise TimeoutError("no reply in time: permits may have been taken")
        time.sleep(seconds)

    def decide(self, call_id, permits, numbers):
        server_now, available, reset = numbers[:3]
        if len(numbers) > 3:
            self.rate = numbers[3]
        if permits > self.rate:
            raise ValueError("the permits exceed the rate")
        if len(numbers) > 5:  # the live grants were summed: again after a pause
            self.sum_at = time.monotonic() + (max(numbers[5], 1) / 1000 if numbers[5] not in (-1, -3) else 5)
        if available < permits:
            return Denied(max(reset + 3, 1) / 1000)
        self.granted_at = time.monotonic()
        return Grant(call_id, numbers[7] if len(numbers) > 7 else server_now, permits)

    def acquire(self, permits=1, timeout=float("inf")):
        """Waits until the permits are available: a Grant, or None after so many seconds."""
        end = time.monotonic() + timeout
        while isinstance(decision := self.check(permits), Denied):
            # Who was granted permits a moment ago lets the other clients ask first.
            late = 0.1 if time.monotonic() - self.granted_at < decision.wait else 0.004
            wait = decision.wait + random.uniform(0, min(late, decision.wait / 9))
            if time.monotonic() + wait > end:
                time.sleep(max(end - time.monotonic(), 0))
                return None
            time.sleep(wait)
        return decision

    def refund(self, grant):
        args = ["", grant.score, grant.call_id, grant.permits, ""]
        return self.redis.script("refund.lua", self.refund_keys, args)

    def release(self, permits):
        while permits > 0:
            permits = self.redis.script("release.lua", self.refund_keys, ["", permits, ""])

    def available_permits(self):
        progress = []
        while len(progress := self.redis.script("available_permits.lua", self.keys, ["", *progress])) > 1:
            pass
        return int(progress[0])


def main():
    limiter = RateLimiter(Redis(int(sys.argv[1])), *sys.argv[2:4])
    grant = None
    for call, *words in map(str.split, sys.stdin):
        numbers = [int(word) for word in words]
        if call in ("check", "acquire"):
            grant = getattr(limiter, call)(*numbers)
            result = isinstance(grant, Grant)
        elif call == "refund":
            result = limiter.refund(grant)
        elif call == "load":  # acquires for so many ms, and tells how many permits it was granted
            end, result = time.monotonic() + numbers[0] / 1000, 0
            while (left := end - time.monotonic()) > 0:
                result += bool(limiter.acquire(1, left))
        else:
            result = getattr(limiter, call)(*numbers)
        print(result, flush=True)


if __name__ == "__main__":
    main()
