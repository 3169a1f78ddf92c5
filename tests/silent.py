"""A journal for stages that run inside a test."""

from contextlib import nullcontext


class Silent:
    """Keeps what it is told."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    def progress(self, *_):
        pass

    def loading(self):
        return nullcontext()
