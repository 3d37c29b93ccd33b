"""Holds client.py to the cases of lua/vectors/client/ that concern what it does: single requests by the server's clock.

Run `python3 -m unittest` in this folder.
"""
import json, unittest

import client


def cases(name):
    text = (client.FOLDER / "vectors" / "client" / (name + ".json")).read_text()
    return [(case["name"], case["given"], case["result"]) for case in json.loads(text)["cases"]]


class Vectors(unittest.TestCase):
    def test_a_limiter_has_its_keys(self):
        for name, given, result in cases("keys"):
            with self.subTest(name):
                keys, audit = client.keys_of(given["name"], given["client_id"])
                self.assertEqual((keys, audit), (result["keys"], result["audit"]))

    def test_a_reply_is_read(self):
        read = 0
        for name, given, result in cases("acquire"):
            if [count for _, count in given["requests"]] != [1] or "share" in given or given.get("now"):
                continue
            with self.subTest(name):
                self.assertEqual(self.conclusions(given), result)
                read += 1
        self.assertGreater(read, 0)

    def conclusions(self, given):
        limiter, audited_rate = client.RateLimiter(None, "n"), given.get("audited_rate")
        (permits, _), numbers = given["requests"][0], given["reply"]["doubles"]
        outcome, score, wait = "granted", None, None
        try:
            decision = limiter.decision(b"", permits, audited_rate, numbers)
            if isinstance(decision, client.Denied):
                outcome, wait = "denied", int(decision.wait)
            else:
                score = decision.score
        except ValueError:
            outcome = "error"
        sum_after = client.sum_after(audited_rate, numbers)
        return {"requests": [outcome], "score": score, "wait": wait, "sum_after": sum_after}

    def test_a_wait_is_interrupted_if_it_is_long(self):
        for name, given, result in cases("waits"):
            with self.subTest(name):
                self.assertEqual({"ask_after": client.ask_after(given["wait"])}, result)

    def test_an_attempt_says_what_was_attempted_before(self):
        for name, given, result in cases("retries"):
            if "now" in given:
                continue
            with self.subTest(name):
                noted = [(attempt["deadline"], attempt["from"]) for attempt in given["noted"]]
                retry = client.retry_after(noted, given.get("more")) if noted else None
                attempts = noted + [(given["deadline"], 0)]
                wait = client.wait_to_return(attempts, given["decided_at"])
                self.assertEqual({"retry": retry, "wait": wait}, result)


if __name__ == "__main__":
    unittest.main()
