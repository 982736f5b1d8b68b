"""Reads rooms.txt and libraries.txt."""
import fnmatch
import re


def rows_of(path):
    for line in path.read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line:
            yield line


def read_rooms(path):
    """{room: [rooms it may include]}"""
    rooms = {}
    for line in rows_of(path):
        room, allowed = line.split(":")
        rooms[room.strip()] = allowed.split()
    for room, allowed in rooms.items():
        for other in allowed:
            if other not in rooms:
                raise ValueError(f"{path}: {room} may include {other}, which is no room")
    return rooms


def inside(path, folder):
    return path.startswith(folder + "/")


def room_of(rooms, path):
    """The room with the longest name that path lies in, None if it lies in none."""
    return max((room for room in rooms if inside(path, room)), key=len, default=None)


def allows(allowed, target):
    return any(inside(target, room) for room in allowed)


class Library:
    """One row of libraries.txt."""

    def __init__(self, line):
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 4:
            raise ValueError(f"libraries.txt: four fields are needed: {line}")
        self.name = fields[0]
        self.headers = fields[1].split()
        self.names = fields[2].split()
        self.files = fields[3].split()
        self._pattern = re.compile(
            r"(?<![A-Za-z0-9_])(?:" + "|".join(map(re.escape, self.names)) + r")\w*")

    def has_header(self, header):
        return any(header == prefix or (not prefix.endswith(".h") and header.startswith(prefix))
                   for prefix in self.headers)

    def allows(self, path):
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in self.files)

    def uses(self, code):
        """(line, name) of every name of the library in code without comments and strings."""
        for match in self._pattern.finditer(code):
            yield code.count("\n", 0, match.start()) + 1, match.group()


def read_libraries(path):
    return [Library(line) for line in rows_of(path)]
