"""Reads the fields of a config.json of transformers, which is not trusted; loads no TensorFlow."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from object_detection.errors import ConfigError

# Largest size, count or index that a network may have.
_MOST = 2**16
_MOST_NUMBER = 1e6
_MOST_TEXT = 60
# Names of an activation there -> here.
ACTIVATIONS = {'relu': 'relu', 'silu': 'silu', 'swish': 'silu', 'gelu': 'gelu'}
# What configs of all models have, and what says how weights begin or what is returned.
_WITHOUT_EFFECT = (
    '_name_or_path architectures attn_implementation auto_map bos_token_id chunk_size_feed_forward '
    'decoder_start_token_id dtype eos_token_id init_std init_xavier_std '
    'initializer_bias_prior_prob initializer_range is_encoder_decoder label2id model_type '
    'output_attentions output_hidden_states pad_token_id problem_type return_dict stage_names '
    'tie_word_embeddings torch_dtype torchscript transformers_version use_cache '
    'use_pretrained_backbone'
)


class Fields:
    """The fields of an object of JSON; null stands for a field that is not there.

    Args:
      values: the object.
      path: of the object in the file, for errors; '' for the file itself.
      without_effect: names of fields that change nothing that is computed, besides those that all
        models have.

    Raises:
      ConfigError: if it is no object.
    """

    def __init__(self, values: Any, path: str = '', without_effect: str = ''):
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            raise ConfigError.expected(path or 'the file', 'an object of JSON', shown(values))
        self._values = {name: value for name, value in values.items() if value is not None}
        self._path = path
        self._read = {*_WITHOUT_EFFECT.split(), *without_effect.split()}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def where(self, name: str) -> str:
        """Returns the path of a field."""
        return f'{self._path}.{name}' if self._path else name

    def error(self, name: str, what: str) -> ConfigError:
        """Returns the error of a field, of which something else was expected."""
        return ConfigError.expected(self.where(name), what, shown(self._values.get(name)))

    def take(self, name: str, default: Any = None) -> Any:
        """Returns a value of any kind."""
        self._read.add(name)
        return self._values.get(name, default)

    def integer(self, name: str, default: int, least: int = 1, alias: str = '') -> int:
        """Returns a whole number; `alias` is another name of the field, which says the same."""
        value = self._integer(name, self.take(name, default), least)
        if alias and alias in self._values:
            other = self._integer(alias, self.take(alias), least)
            if name in self._values and other != value:
                raise self.error(alias, f'{value}, as {self.where(name)}')
            value = other
        return value

    def _integer(self, name: str, value: Any, least: int) -> int:
        if not is_integer(value) or not least <= value <= _MOST:
            raise self.error(name, f'a whole number from {least} to {_MOST}')
        return int(value)

    def integers(self, name: str, default: Sequence[int], least: int = 1) -> list[int]:
        """Returns a list of whole numbers."""
        values = self.take(name, default)
        is_list = isinstance(values, Sequence) and not isinstance(values, str)
        if not is_list or not all(is_integer(v) and least <= v <= _MOST for v in values):
            raise self.error(name, f'a list of whole numbers from {least} to {_MOST}')
        return [int(value) for value in values]

    def number(self, name: str, default: float) -> float:
        """Returns a number that is at least 0."""
        value = self.take(name, default)
        if not is_number(value) or not 0 <= value <= _MOST_NUMBER:
            raise self.error(name, f'a number from 0 to {_MOST_NUMBER:g}')
        return float(value)

    def numbers(self, name: str, default: Sequence[float]) -> list[float]:
        """Returns three numbers: of red, green and blue."""
        values = self.take(name, default)
        is_list = isinstance(values, Sequence) and not isinstance(values, str)
        if not is_list or len(values) != 3 or not all(map(is_number, values)):
            raise self.error(name, 'three numbers: red, green, blue')
        return [float(value) for value in values]

    def flag(self, name: str, default: bool) -> bool:
        """Returns true or false."""
        value = self.take(name, default)
        if not isinstance(value, bool):
            raise self.error(name, 'true or false')
        return value

    def flags(self, name: str, default: Sequence[bool]) -> list[bool]:
        """Returns a list of true and false."""
        values = self.take(name, default)
        is_list = isinstance(values, Sequence) and not isinstance(values, str)
        if not is_list or not all(isinstance(value, bool) for value in values):
            raise self.error(name, 'a list of true and false')
        return list(values)

    def choice(self, name: str, default: str, choices: Collection[str]) -> str:
        """Returns one of some texts."""
        value = self.take(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.error(name, f'one of {", ".join(choices)}')
        return value

    def activation(self, name: str, default: str) -> str:
        """Returns the name here of an activation."""
        return ACTIVATIONS[self.choice(name, default, ACTIVATIONS)]

    def only(self, name: str, value: Any, why: str) -> None:
        """Refuses all values but one, which is the default."""
        found = self.take(name, value)
        # 0 is 0.0, but no false.
        if isinstance(found, bool) != isinstance(value, bool) or found != value:
            raise self.error(name, f'{shown(value)}; {why}')

    def none(self, name: str, why: str) -> None:
        """Refuses a field that is there."""
        if name in self._values:
            raise self.error(name, f'none; {why}')

    def unknown(self) -> list[str]:
        """Returns the paths of the fields that nothing has read."""
        return [self.where(name) for name in sorted(self._values) if name not in self._read]


def is_number(value: Any) -> bool:
    """Whether a value is a finite number, and no flag."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and (isinstance(value, int) or math.isfinite(value))


def is_integer(value: Any) -> bool:
    """Whether a value is a whole number, maybe written as 4.0."""
    return is_number(value) and value == math.floor(value)


def shown(value: Any) -> str:
    """Returns a value as JSON has it, cut off where it is long."""
    if value is None or isinstance(value, bool):
        return {None: 'none', True: 'true', False: 'false'}[value]
    text = repr(value) if not isinstance(value, Mapping) else f'an object of {sorted(value)[:4]}'
    text = re.sub(r'[^ -~]', '?', text)
    return text if len(text) <= _MOST_TEXT else f'{text[:_MOST_TEXT]}...'
