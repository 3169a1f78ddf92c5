"""A journal for stages that run inside a test."""


class Silent:
    """Keeps what it is told."""

    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)

    def progress(self, *_):
        pass
