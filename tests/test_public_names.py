"""Names that users of other programs write: modules, functions, flags, options and variables.

`public_names.json` lists what is to stay; a name that is added is allowed, but for variables.
"""

import importlib
import json
import pathlib
import runpy
import sys

import click
import keras
import pytest
from absl import app, flags

from object_detection.builders import model_builder
from object_detection.cli import main as cli
from tests import tiny_models
from tests.meta_architectures.center_net import test_center_net as center_net
from tests.meta_architectures.ssd import configs as ssd

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / 'object_detection'
RECORDED = json.loads((pathlib.Path(__file__).parent / 'public_names.json').read_text())


def test_modules_have_their_names():
    missing = {}
    for module, names in RECORDED['modules'].items():
        found = importlib.import_module(module)
        absent = [name for name in names.split() if not hasattr(found, name)]
        if absent:
            missing[module] = absent
    assert missing == {}


def options_of(command: click.Command, path: tuple[str, ...] = ()) -> dict[str, set[str]]:
    """Options of a command and of those within it, by the words that call it."""
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    found = {' '.join(path): options} if path else {}
    for name in command.list_commands(None) if isinstance(command, click.Group) else ():
        found |= options_of(command.get_command(None, name), (*path, name))
    return found


def test_commands_have_their_options():
    found = options_of(cli.main)
    missing = {
        command: sorted(set(names.split()) - found.get(command, set()))
        for command, names in RECORDED['commands'].items()
    }
    assert {command: names for command, names in missing.items() if names} == {}


def flags_of(path: pathlib.Path, patch: pytest.MonkeyPatch) -> set[str]:
    """The flags that a program defines when it is run."""
    found = set()
    for name in dir(flags):
        if name.startswith('DEFINE_'):
            patch.setattr(flags, name, lambda flag, *_, **__: found.add(flag))
    patch.setattr(flags, 'mark_flags_as_required', lambda names: None)
    patch.setattr(app, 'call_after_init', lambda function: None)
    patch.setattr(app, 'run', lambda *_, **__: None)
    patch.setattr(sys, 'argv', [path.name])
    runpy.run_path(str(path), run_name='__main__')
    return found


def test_programs_have_their_flags(monkeypatch):
    missing = {}
    for program, names in RECORDED['programs'].items():
        with monkeypatch.context() as patch:
            absent = set(names.split()) - flags_of(PACKAGE / f'{program}.py', patch)
        if absent:
            missing[program] = sorted(absent)
    assert missing == {}


def layers(detector: keras.layers.Layer) -> dict[str, str]:
    """The variables of a detector by layer."""
    found = {}
    for name in detector.named_variables():
        layer, _, variable = name.rpartition('/')
        found.setdefault(layer, []).append(variable)
    return {layer: ' '.join(variables) for layer, variables in found.items()}


def tiny_models_of_families() -> dict[str, dict[str, str]]:
    single_shot = model_builder.build(ssd.tiny())
    single_shot.build_variables()
    points = model_builder.build(center_net.parse())
    points.build_variables()
    return {
        'ssd': layers(single_shot),
        'faster_rcnn': layers(tiny_models.tiny_detector()),
        'center_net': layers(points),
    }


def test_variables_of_checkpoints_have_their_names_and_order():
    assert tiny_models_of_families() == RECORDED['variables']
