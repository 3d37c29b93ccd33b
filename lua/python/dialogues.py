"""Holds a client to the dialogues of lua/vectors/client/dialogues.json: what it sends after which answer.

`dialogues.py COMMAND...` starts the command for each case, with the port of a server that answers as the case says and the name of a limiter
behind it, as `client.py PORT NAME`. The command is a client in any language, as for lossy.py: it reads `check N` and prints `True`, `False` or
`error` and why; at the end of its input it gives back what is to go back, and ends. It ends with 1 if a client does anything else.

A case gives the permits and what becomes of each attempt, in order: `granted`, `denied`, `found` (what the first attempt was granted), `late` (the
server's clock alone), a `word` with its `number`, an `error`, `lost` (the connection is closed), `half` (after half of a reply), `silence`; after
these `and_then`. The result has for each attempt which of those before it are noted, as the option `retry` says; the answer of the call; the attempts
whose deadlines must have passed by then; and those that `reclaim.lua` gives back, `all` that were made, or null where it must not be called.
"""
import asyncio, hashlib, json, struct, sys, time

import client
from lossy import command_of

NAME, RATE, INTERVAL = "dialogue", 10, 3_600_000
PATIENCE = 60.0  # in seconds, for a client that is never heard of again


class Failed(Exception):
    """The client does not do what is asked."""


def text(bytes):
    return b"$%d\r\n%b\r\n" % (len(bytes), bytes)


def doubles(*numbers, word=b""):
    return text(b"".join(struct.pack("<d", number) for number in numbers) + word)


def script_of(words):
    """The name of the script that a command runs."""
    sha1 = words[1].decode().lower() if words[0].upper() == b"EVALSHA" else hashlib.sha1(words[1]).hexdigest()
    return next(name for name, known in client.SHA1.items() if known == sha1)


class Attempt:
    def __init__(self, at, args):
        self.at, self.deadline, self.member, self.permits = at, int(args[0]), args[1], int(args[3])
        self.type = args[5].decode() if len(args) > 5 else ""
        self.retry = None
        if b"retry" in args[7:]:
            place = args.index(b"retry", 7)
            self.retry = [int(number) for number in args[place + 1 : place + 4]]


class Dialogue:
    def __init__(self, given):
        self.steps, self.last = given["server"], given.get("and_then")
        self.attempts, self.reclaims, self.ahead, self.failure = [], [], 0, None

    def clock(self):
        return int(time.time() * 1000) + self.ahead

    def step(self):
        place = len(self.attempts) - 1
        if place < len(self.steps):
            return self.steps[place]
        if self.last is None:
            raise Failed(f"attempt {place} comes after the call was decided")
        return self.last

    def reply(self, step):
        """The reply, in Redis's protocol; None for none."""
        now, first = self.clock(), self.attempts[0]
        if step == "granted":
            return doubles(now, RATE, INTERVAL, INTERVAL, INTERVAL, RATE, 0, 0)
        if step == "denied":
            return doubles(now, 0, INTERVAL, INTERVAL, INTERVAL, RATE, 0, 0)
        if step == "found":
            return doubles(now, first.permits, INTERVAL, INTERVAL, INTERVAL, RATE, 0, 0, 1, first.at, -1, -1, RATE - first.permits)
        if step == "late":
            self.ahead += max(self.attempts[-1].deadline + 1 - now, 0)  # it was stopped for so long
            return doubles(self.clock())
        if isinstance(step, dict) and "word" in step:
            return doubles(now, step["number"], word=step["word"].encode())
        if isinstance(step, dict):
            return b"-" + step["error"].encode() + b"\r\n"
        return None

    async def accepted(self, reader, writer):
        try:
            while await self.answer(await command_of(reader), writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed its connection
        except (Failed, StopIteration) as failed:
            self.failure = failed
        writer.close()

    async def answer(self, command, writer):
        """Whether the connection goes on."""
        words = command[1]
        name = words[0].upper()
        if name == b"TIME":
            micros = time.time_ns() // 1000 + self.ahead * 1000
            writer.write(b"*2\r\n" + text(b"%d" % (micros // 1_000_000)) + text(b"%d" % (micros % 1_000_000)))
        elif name == b"INFO":
            writer.write(text(b"redis_version:7.2.0\r\nredis_mode:standalone\r\nrole:master\r\n"))
        elif name not in (b"EVALSHA", b"EVAL"):
            writer.write(b"+OK\r\n")
        elif (script := script_of(words)) == "reclaim.lua":
            writer.write(self.reclaimed(words[3 + int(words[2]) :]))
        elif script == "acquire.lua":
            self.attempts.append(Attempt(self.clock(), words[3 + int(words[2]) :]))
            step = self.step()
            if step == "lost":
                return False
            if step == "half":
                writer.write(self.reply("granted")[:20])
                await writer.drain()
                return False
            if (reply := self.reply(step)) is not None:
                writer.write(reply)
        else:
            raise Failed(f"{script} is called")
        return True

    def reclaimed(self, args):
        now = self.clock()
        if (wait := int(args[1]) - now + 1) > 0:
            return doubles(now, wait, word=b"early")
        self.reclaims.append(args)
        return doubles(now, 0, word=b"done")

    def check(self, given, result, answer, answered_at):
        def expect(found, expected, what):
            if found != expected:
                raise Failed(f"{what}: {found}, and not {expected}")

        expect(answer, result["answer"], "the answer")
        noted, attempts = result["noted"], self.attempts
        if self.last is None:
            expect(len(attempts), len(noted), "attempts")
        for place, (attempt, before) in enumerate(zip(attempts, noted)):
            what = f"attempt {place}"
            expect((attempt.member, attempt.permits), (attempts[0].member, given["permits"]), f"{what}: member and permits")
            step = self.steps[place - 1] if place else None
            asked_for = step["number"] if isinstance(step, dict) and step.get("word") == "type" else 0
            expect(attempt.type or "0", str(asked_for), f"{what}: the type")
            if not before:
                expect(attempt.retry, None, f"{what}: the option `retry`")
                continue
            if attempt.retry is None:
                raise Failed(f"{what} has no option `retry`")
            last, since, latest = attempt.retry
            expect((last, latest), (max(attempts[it].deadline for it in before),) * 2, f"{what}: the latest deadline")
            if isinstance(step, dict) and step.get("word") == "more":
                expect(since, step["number"], f"{what}: the score to search from")
            elif not since <= attempts[before[0]].at:
                raise Failed(f"{what} searches from {since}, and not from {attempts[before[0]].at} on")
        for place in result["waits_for"]:
            if answered_at <= attempts[place].deadline:
                raise Failed(f"it answers before the deadline of attempt {place} has passed")
        self.check_reclaims(result["reclaimed"])

    def check_reclaims(self, reclaimed):
        if reclaimed is None:
            if self.reclaims:
                raise Failed("it calls reclaim.lua")
            return
        if not self.reclaims:
            raise Failed("it does not call reclaim.lua")
        of = self.attempts if reclaimed == "all" else [self.attempts[it] for it in reclaimed]
        last = max(attempt.deadline for attempt in of)
        args = self.reclaims[-1]
        if int(args[1]) != last or args[2] != of[0].member or int(args[3]) > of[0].at or int(args[4]) != last:
            raise Failed(f"it calls reclaim.lua with {args}")


async def play(command, case):
    given, dialogue, pipe = case["given"], Dialogue(case["given"]), asyncio.subprocess.PIPE
    server = await asyncio.start_server(dialogue.accepted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    process = await asyncio.create_subprocess_exec(*command, str(port), NAME, stdin=pipe, stdout=pipe)
    try:
        process.stdin.write(b"check %d\n" % given["permits"])
        line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode().strip()
        answered_at = dialogue.clock()
        process.stdin.close()
        await asyncio.wait_for(process.wait(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
        server.close()
    if dialogue.failure:
        raise dialogue.failure
    answer = {"True": "granted", "False": "denied"}.get(line, line.split(" ")[0])
    dialogue.check(given, case["result"], answer, answered_at)


async def main():
    command = sys.argv[1:]
    if not command:
        raise Failed("the command of the client is missing")
    cases = json.loads((client.FOLDER / "vectors" / "client" / "dialogues.json").read_text())["cases"]
    for case in cases:
        try:
            await play(command, case)
        except (Failed, asyncio.TimeoutError) as failed:
            raise Failed(f"{case['name']}: {failed or 'the client is never heard of again'}") from None
    print(f"{len(cases)} dialogues")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except Failed as failed:
        sys.exit(f"dialogues.py: {failed}")
