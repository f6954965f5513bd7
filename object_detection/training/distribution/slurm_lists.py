"""The short forms in which SLURM lists machines and numbers of tasks."""

import re

from object_detection.errors import ConfigError


def hosts(text: str, where: str) -> list[str]:
    """Expands a list of machines, e.g. 'gpu[1-2,07],login' to gpu1, gpu2, gpu07, login.

    Args:
      text: the list; numbers keep their leading zeros, and several brackets multiply.
      where: named in errors.

    Raises:
      ConfigError: if it is no such list.
    """
    if not re.fullmatch(r'(?:[^\[\]]|\[[\d,-]+\])+', text):
        raise ConfigError(f'{where}: expected machines such as node[1-3,5]. Received: {text!r}.')
    names: list[str] = []
    # Commas within brackets belong to the numbers.
    for part in re.split(r',(?![^\[]*\])', text.replace(' ', '')):
        names += _expand(part, where)
    return names


def counts(text: str, where: str) -> list[int]:
    """Expands numbers of tasks, e.g. '2(x3),1' to 2, 2, 2, 1.

    Raises:
      ConfigError: naming `where`, if it is no such list.
    """
    numbers: list[int] = []
    for part in text.split(','):
        match = re.fullmatch(r'(\d+)(?:\(x(\d+)\))?', part.strip())
        if not match:
            raise ConfigError(f'{where}: expected numbers such as 2(x3),1. Received: {text!r}.')
        numbers += [int(match[1])] * int(match[2] or 1)
    return numbers


def _expand(name: str, where: str) -> list[str]:
    prefix, bracket, rest = name.partition('[')
    if not bracket:
        return [name] if name else []
    inside, _, tail = rest.partition(']')
    numbers: list[str] = []
    for part in inside.split(','):
        match = re.fullmatch(r'(\d+)(?:-(\d+))?', part)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ConfigError(f'{where}: expected ranges such as 1-3. Received: {part!r}.')
        last = int(match[2] or match[1])
        numbers += [str(n).zfill(len(match[1])) for n in range(int(match[1]), last + 1)]
    return [f'{prefix}{number}{end}' for number in numbers for end in _expand(tail, where) or ['']]
