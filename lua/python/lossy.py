"""Holds a client to what lua/README.md says of retries: a call is decided once, whatever is lost on its way.

`lossy.py [--calls N] [--clients N] [--seed N] REDIS_PORT COMMAND...` starts the command several times, with the port of a proxy and a name
behind it, as `client.py PORT NAME`. The command is a client in any language: it reads calls, one a line, and prints a line for each: `check N`
prints `True` or `False`, and `refund`, which gives the last grant back, how many permits came back; a call without a decision prints `error`
and why. The proxy loses, cuts and delays calls of acquire.lua, multi_acquire.lua and reclaim.lua, and their replies. In the end the limiter
must hold what the clients were told that they have: no permit more, none less. It ends with 1 if that is not so.
"""
import argparse, asyncio, hashlib, random, sys, uuid
from collections import Counter

import client

LOST = {client.SHA1[name] for name in ("acquire.lua", "multi_acquire.lua", "reclaim.lua")}
FATES = ["refused", "overtaken", "overtaken", "delayed", "cut", "half", "late", "swallowed"]
FAULTS, LONGEST_DELAY = 0.4, 1.2  # the part of the calls, and seconds
RATE, INTERVAL = 1_000_000, 3_600_000


async def element(reader):
    """The bytes of one element of Redis's protocol, and whether it is the reply: a push or an attribute comes before it."""
    line = await reader.readuntil(b"\r\n")
    kind = line[:1]
    number = int(line[1:]) if kind in b"$=!*~>%|" else 0
    if kind in b"$=!" and number >= 0:
        line += await reader.readexactly(number + 2)
    for _ in range(number * (2 if kind in b"%|" else 1) if kind in b"*~>%|" else 0):
        line += (await element(reader))[0]
    return line, kind not in b">|"


async def reply_of(reader):
    whole, is_reply = b"", False
    while not is_reply:
        part, is_reply = await element(reader)
        whole += part
    return whole


async def command_of(reader):
    """A command's bytes and its words."""
    line = await reader.readuntil(b"\r\n")
    whole, words = line, []
    for _ in range(int(line[1:])):
        part, _ = await element(reader)
        whole += part
        words.append(part.split(b"\r\n", 1)[1][:-2])
    return whole, words


def may_be_lost(words):
    name, script = words[0].upper(), words[1:2]
    if name == b"EVAL":
        return hashlib.sha1(script[0]).hexdigest() in LOST
    return name == b"EVALSHA" and script[0].decode().lower() in LOST


class Proxy:
    def __init__(self, port, chance):
        self.port, self.chance, self.faults, self.connections = port, chance, Counter(), set()

    async def start(self):
        server = await asyncio.start_server(self.accepted, "127.0.0.1", 0)
        return server.sockets[0].getsockname()[1]

    async def accepted(self, reader, writer):
        task = asyncio.current_task()
        self.connections.add(task)
        to_redis = None
        try:
            from_redis, to_redis = await asyncio.open_connection("127.0.0.1", self.port)
            await self.serve(reader, writer, from_redis, to_redis)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # one of them has closed its connection
        finally:
            writer.close()
            if to_redis:
                to_redis.close()
            self.connections.discard(task)

    def fate(self, words):
        if not may_be_lost(words) or self.chance.random() >= FAULTS:
            return None
        fate = self.chance.choice(FATES)
        self.faults[fate] += 1
        return fate

    async def serve(self, reader, writer, from_redis, to_redis):
        is_silent = False
        while True:
            command, words = await command_of(reader)
            fate, delay = self.fate(words), self.chance.uniform(0, LONGEST_DELAY)
            if fate == "refused":
                return
            if fate == "overtaken":
                writer.close()  # the next attempt may arrive before this one
                delay /= 4
            if fate in ("overtaken", "delayed"):
                await asyncio.sleep(delay)  # it arrives, even if nobody waits for it any more
            to_redis.write(command)
            reply = await reply_of(from_redis)
            if fate == "late":
                await asyncio.sleep(delay)
            is_silent = is_silent or fate == "swallowed"
            if fate == "half":
                writer.write(reply[: len(reply) // 2])
                await writer.drain()
            if fate in ("overtaken", "cut", "half"):
                return
            if not is_silent:
                writer.write(reply)

    async def drained(self):
        """What was delayed has arrived."""
        while self.connections:
            await asyncio.wait(self.connections)


class Failed(Exception):
    """The client does not do what is asked."""


async def run(command, calls, chance, sums):
    """Has one client make the calls."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)

    async def call(line):
        process.stdin.write(line.encode() + b"\n")
        result = (await process.stdout.readline()).decode().strip()
        if not result:
            raise Failed(f"the client ended in `{line}`")
        return result

    try:
        for _ in range(calls):
            permits = chance.randint(1, 3)
            line, expected = f"check {permits}", "True"
            if (result := await call(line)) == expected and chance.random() < 0.3:
                line, expected = "refund", str(permits)
                result = await call(line)
            if result.startswith("error"):
                sums["failed"] += 1
                sums["may be held"] += permits
            elif result != expected:
                raise Failed(f"`{line}` for {permits} permits was answered by {result}, not by {expected}")
            elif line == "refund":
                sums["refunded"] += 1
            else:
                sums["told"] += permits
        process.stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


async def main():
    parser = argparse.ArgumentParser(usage="%(prog)s [--calls N] [--clients N] [--seed N] REDIS_PORT COMMAND...")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("port", type=int)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("the command of the client is missing")
    redis, name = client.Redis(options.port), f"lossy:{uuid.uuid4()}"
    proxy = Proxy(options.port, random.Random(options.seed))
    limiter, sums = client.RateLimiter(redis, name), Counter()
    limiter.try_set_rate(RATE, INTERVAL)
    command = [*options.command, str(await proxy.start()), name]
    chances = [random.Random(options.seed + 1 + place) for place in range(options.clients)]
    try:
        await asyncio.gather(*(run(command, options.calls, chance, sums) for chance in chances))
        await proxy.drained()
        members = redis.command("ZRANGE", limiter.keys[3], 0, -1)
        held, left = sum(int.from_bytes(member[-4:], "little") for member in members), limiter.available_permits()
    finally:
        redis.command("DEL", *limiter.refund_keys)
    faults = ", ".join(f"{number} {fate}" for fate, number in sorted(proxy.faults.items()))
    print(f"seed {options.seed}: {options.clients} x {options.calls} calls; {faults}")
    print(f"{sums['failed']} failed, {sums['refunded']} were refunded; the clients hold {sums['told']}, the limiter {held}")
    if sums["failed"] > options.clients * options.calls / 10:
        raise Failed("more calls failed than a client needs to have fail")
    if not sums["told"] <= held <= sums["told"] + sums["may be held"] or left != RATE - held:
        raise Failed(f"permits were lost, or taken twice: {left} of {RATE} are left")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (Failed, OSError, client.ServerError) as failed:
        sys.exit(f"lossy.py: {failed}")
