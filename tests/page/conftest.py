import pytest

from dasp.core.errors import OptionError
from dasp.page.feed import Update


class Counting:
    """A feed that counts: each batch is a point, every third has samples and a sound."""

    follows = False

    def __init__(self, last=None, can=("play", "pause", "step", "speed", "reset")):
        self.number, self.last, self.can = 0, last, can
        self.resets, self.wishes = 0, []

    def about(self):
        return {"title": "counting", "can": list(self.can), "modalities": ["audio", "video"]}

    def state(self):
        return {"wishes": len(self.wishes)}

    def next(self):
        if self.number == self.last:
            return None
        self.number += 1
        n = self.number - 1
        samples = [{"class": "one", "sound": True}] if n % 3 == 0 else []
        return Update({"n": n}, samples, {0: b"RIFF"} if samples else {})

    def reset(self):
        self.number = 0
        self.resets += 1

    def obey(self, wish):
        if wish.get("severity") == 9:
            raise OptionError("severity is 0 to 5, not 9.")
        self.wishes.append(wish)


@pytest.fixture
def counting():
    return Counting
