import pytest

from dasp.core.errors import OptionError
from dasp.page.runner import RUN_COMMANDS, Feed, Update


class Counting(Feed):
    """A feed whose points count up; every third batch has a sample with a sound."""

    def __init__(self, last=None, can=(*RUN_COMMANDS, "corrupt")):
        self.number, self.last, self.can = 0, last, list(can)
        self.resets, self.commands = 0, []

    def about(self):
        return {"title": "counting", "can": self.can, "modalities": ["audio", "video"]}

    def state(self):
        return {"commands": len(self.commands)}

    def next(self):
        if self.number == self.last:
            return None
        n, self.number = self.number, self.number + 1
        has_sample = n % 3 == 0
        return Update({"n": n}, [{"class": "one"}] * has_sample, {0: b"RIFF"} if has_sample else {})

    def reset(self):
        self.number = 0
        self.resets += 1

    def control(self, command):
        if command.get("severity") == 9:
            raise OptionError("severity is 0 to 5, not 9.")
        self.commands.append(command)
        return False


@pytest.fixture
def counting():
    return Counting
