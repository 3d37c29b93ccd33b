"""A rate limiter in Redis that shares its permits with Redisson's RRateLimiter and with this crate.

It uses the scripts in lua/ as lua/README.md documents them, and the standard library only. Run as a program,
`client.py PORT NAME [CLIENT_ID]` runs the calls that it reads, one a line, and prints what each returns.
"""
import hashlib, itertools, os, random, socket, struct, sys, time, uuid
from pathlib import Path

FOLDER = Path(__file__).parent.parent
SHA1 = {name: sha1 for sha1, name in (line.split() for line in (FOLDER / "sha1.txt").read_text().splitlines())}
CALL_TIMEOUT, FIRST_ATTEMPT = 3.0, 0.5  # in seconds
CLOCK_STEP = 1000  # in ms


def assemble(name, part=None):
    """The text of a script, or of one part of it, with the files that it includes."""
    text, inside = "", None
    for line in each_line((FOLDER / name).read_text().splitlines()):
        words = line.split()
        if words[:1] != ["--!"]:
            text += line + "\n" if part in (None, inside) else ""
        elif words[1] == "include":
            text += assemble(*words[2:]) if part in (None, inside) else ""
        else:
            inside = words[2] if words[1] == "part" else None
    return text


def each_line(lines):
    """The lines, where those that stand for each policy are repeated."""
    lines = iter(lines)
    for line in lines:
        words = line.split()
        if words[:3] != ["--!", "each", "policy"]:
            yield line
            continue
        repeated = list(itertools.takewhile(lambda line: line.split() != ["--!", "end"], lines))
        for policy in (name[9:-4] for name in SHA1 if name.startswith("policies/")):
            yield from (line.replace(words[3], policy) for line in repeated)


class ServerError(Exception):
    """An error reply."""


class Redis:
    """One connection, opened when it is needed. A command whose reply is lost closes it and raises OSError."""

    def __init__(self, port, host="127.0.0.1"):
        self.address, self.socket, self.file = (host, port), None, None

    def command(self, *words, timeout=1.0):
        try:
            if self.file is None:
                self.socket = socket.create_connection(self.address, timeout)
                self.file = self.socket.makefile("rwb")
            self.socket.settimeout(timeout)
            words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
            self.file.write(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))
            self.file.flush()
            return self.reply()
        except OSError:
            if self.socket is not None:
                self.socket.close()
            self.socket = self.file = None
            raise

    def reply(self):
        line = self.whole(self.file.readline())
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise ServerError(rest.decode(errors="replace"))
        if kind == b"+":
            return rest
        try:
            number = int(rest)
        except ValueError:
            kind = None
        if kind == b":":
            return number
        if kind == b"$":
            return self.whole(self.file.read(number + 2), number)[:-2] if number >= 0 else None
        if kind == b"*":
            return [self.reply() for _ in range(number)]
        raise ConnectionError("this is not Redis's protocol")

    @staticmethod
    def whole(read, length=0):
        """What was read, if it has its end: at the end of a connection, less is read. A part of a reply is no reply."""
        if len(read) < length + 2 or not read.endswith(b"\r\n"):
            raise ConnectionError("the connection was closed")
        return read

    def server_now(self):
        seconds, micros = self.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def script(self, name, keys, args, timeout=1.0):
        end = time.monotonic() + timeout
        try:
            return self.command("EVALSHA", SHA1[name], len(keys), *keys, *args, timeout=timeout)
        except ServerError as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
        script = assemble(name)
        assert hashlib.sha1(script.encode()).hexdigest() == SHA1[name], name
        timeout = max(end - time.monotonic(), 0.001)
        return self.command("EVAL", script, len(keys), *keys, *args, timeout=timeout)


def read(reply):
    """The doubles of a reply, and the word behind them."""
    end = len(reply) // 8 * 8
    return [int(number) for (number,) in struct.iter_unpack("<d", reply[:end])], reply[end:]


class Denied:
    def __init__(self, wait, latest):
        self.wait, self.latest = wait, latest  # in ms: when permits may be available, and by when to ask again at the latest


class Grant:
    def __init__(self, call_id, score, permits):
        self.call_id, self.score, self.permits = call_id, score, permits


def keys_of(name, client_id):
    """The five keys of a limiter, and that of its audits."""
    beside = name if "{" in name else "{%s}" % name
    value, permits, own = beside + ":value", beside + ":permits", ":" + client_id
    return [name, value, value + own, permits, permits + own], beside + ":audit"


def retry_after(attempts, search_from=None):
    """What an attempt says about those before it: their last deadline, and the earliest and latest score of their grants."""
    last = max(deadline for deadline, _ in attempts)
    return [last, search_from or min(score for _, score in attempts), last]


def wait_to_return(attempts, server_now):
    """For how many ms another retry of the call may arrive. If the caller had returned the permits, it would take them again."""
    return max([0] + [deadline - server_now + 1 for deadline, _ in attempts[1:-1]])


def denied(numbers):
    """What this decision says to a denied request."""
    latest = float("inf")
    if len(numbers) > 11 and numbers[11] >= 0:
        latest = numbers[11] / 2  # only a call keeps the limiter alive
    return Denied(min(max(numbers[2] + 3, 1), latest), latest)


def ask_after(wait):
    """How many ms after a denial with this wait the next call comes, before the random delay."""
    return 850 if wait > 1003 else wait  # a release is noticed with the next call


def is_of_acquire(numbers, word):
    if word:
        return word in (b"type", b"early", b"more", b"again") and len(numbers) == 2
    return len(numbers) in (1, 4, 5, 6, 8, 12, 13) or len(numbers) > 14


def sum_after(audited_rate, numbers):
    """For how many ms after this decision no call asks for the sum of the grants; None if this one did not."""
    was_found = len(numbers) > 8 and numbers[8] == 1
    if was_found or len(numbers) < 6 or numbers[5] == audited_rate:
        return None
    summed = numbers[7] if len(numbers) > 7 else 0
    return 5000 if summed in (-1, -3) else max(summed, 1)


class RateLimiter:
    def __init__(self, redis, name, client_id=None):
        self.redis = redis
        self.keys, audit = keys_of(name, client_id or str(uuid.uuid4()))
        self.refund_keys = self.keys + [audit]
        self.type, self.rate, self.sum_at = 0, "", 0.0
        self.granted_at, self.interval = float("-inf"), 0  # in s and ms

    def try_set_rate(self, rate, interval, type=0, keep_alive=0):
        return bool(self.redis.script("try_set_rate.lua", self.keys, [rate, interval, type, keep_alive]))

    def audited_rate(self):
        return self.rate if time.monotonic() < self.sum_at else ""

    def check(self, permits=1):
        """Takes the permits if they are available: a Grant or a Denied. Takes them once, however often it is sent."""
        call_id, end = os.urandom(16), time.monotonic() + CALL_TIMEOUT
        member = bytes([16]) + call_id + struct.pack("<I", permits)
        attempts = []  # deadline and earliest score of each attempt that may have run
        try:
            rate, numbers = self.attempt_until_decided(member, permits, attempts, end)
        except (OSError, ServerError):
            if attempts:
                self.reclaim(member, attempts)
            raise
        return self.decision(call_id, permits, rate, numbers)

    def attempt_until_decided(self, member, permits, attempts, end):
        search_from, too_long = None, 0
        while True:
            try:
                now = self.redis.server_now()
            except OSError:
                self.pause(0.01, end)
                continue
            length = min(FIRST_ATTEMPT * 2**too_long, max(end - time.monotonic(), 0.001))
            rate = self.audited_rate()
            attempt = (now + int(length * 1000), now - CLOCK_STEP)
            args = [attempt[0], member, rate, permits, "", "1" if self.type else ""]
            if attempts:
                args += [0, "retry", *retry_after(attempts, search_from)]
            search_from = None
            keys = self.keys[:1] + self.keys[1 + self.type :: 2]
            attempts.append(attempt)
            try:
                numbers, word = read(self.redis.script("acquire.lua", keys, args, length))
            except ServerError:
                attempts.pop()
                raise
            except OSError as lost:  # it may have run
                too_long += isinstance(lost, socket.timeout)
                self.pause(0.01, end)
                continue
            if not is_of_acquire(numbers, word):
                raise ConnectionError("the reply is that of another call")  # the attempt is lost
            if word:
                attempts.pop()  # it did nothing
            if word == b"type":
                self.type = numbers[1]
            elif word == b"early":
                self.pause(numbers[1] / 1000, end)
            elif word == b"more":
                search_from = numbers[1]
            elif not word and len(numbers) > 1:
                wait = wait_to_return(attempts, numbers[0])
                time.sleep(min(wait / 1000, max(end - time.monotonic(), 0)))
                return rate, numbers
            self.pause(0, end)  # it was not decided, or came after its deadline

    def pause(self, seconds, end):
        if time.monotonic() + seconds >= end:
            raise TimeoutError("no reply in time: permits may have been taken")
        time.sleep(seconds)

    def reclaim(self, member, attempts):
        """Gives back what a call has taken that is over."""
        end = time.monotonic() + CALL_TIMEOUT
        last, search_from, latest = retry_after(attempts)
        while True:
            args = ["", last, member, search_from, latest, self.audited_rate(), ""]
            try:
                numbers, word = read(self.redis.script("reclaim.lua", self.refund_keys, args))
            except OSError:
                self.pause(0.01, end)
                continue
            if word == b"done":
                return
            if word == b"more":
                search_from = numbers[1]
            self.pause(numbers[1] / 1000 if word == b"early" else 0, end)

    def decision(self, call_id, permits, audited_rate, numbers):
        pause = sum_after(audited_rate, numbers)
        if pause is not None:
            self.rate, self.sum_at = numbers[5], time.monotonic() + pause / 1000
        rate = numbers[5] if len(numbers) > 5 else audited_rate
        self.interval = numbers[3]
        available, was_found = numbers[1], len(numbers) > 8 and numbers[8] == 1
        if was_found and available > 0:
            permits = min(permits, available)  # a release may have taken some of them
        elif permits > rate:
            raise ValueError("the permits exceed the rate")
        elif available < permits:
            return denied(numbers)
        self.granted_at = time.monotonic()
        return Grant(call_id, numbers[9] if len(numbers) > 9 else numbers[0], permits)

    def acquire(self, permits=1, timeout=float("inf")):
        """Waits until the permits are available: a Grant, or None after so many seconds."""
        end = time.monotonic() + timeout
        while isinstance(decision := self.check(permits), Denied):
            wait = ask_after(decision.wait)
            if wait == decision.wait:
                # A client that was granted permits in the last interval lets the others ask first.
                is_recent = time.monotonic() - self.granted_at < self.interval / 1000
                wait += random.uniform(0, min(100, self.interval / 9) if is_recent else 4)
            wait = min(wait, decision.latest) / 1000
            if time.monotonic() + wait > end:
                time.sleep(max(end - time.monotonic(), 0))
                return None
            time.sleep(wait)
        return decision

    def refund(self, grant):
        args = ["", grant.score, grant.call_id, grant.permits, self.audited_rate()]
        return self.redis.script("refund.lua", self.refund_keys, args)

    def release(self, permits):
        while permits > 0:
            permits = self.redis.script("release.lua", self.refund_keys, ["", permits, self.audited_rate()])

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
        try:
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
        except (OSError, ServerError) as failed:
            result = f"error {failed}"
        print(result, flush=True)


if __name__ == "__main__":
    main()
