"""The report about a TPU, and the page of documents that shows one."""

import pathlib
import re

import pytest
from click.testing import CliRunner
from google.protobuf import text_format

from object_detection.cli.common import tpu_report
from object_detection.cli.config import command
from object_detection.config.findings import Finding
from object_detection.config.reader import read_pipeline
from object_detection.protos.pipeline_pb2 import TrainEvalPipelineConfig
from object_detection.validation import tpu
from tests.conftest import SHARED

PAGE = pathlib.Path(__file__).resolve().parents[3] / 'docs' / 'tpu.md'
SAMPLES = SHARED / 'reference' / 'configs' / 'samples'
CONFIG = 'ssd_mobilenet_v2_coco.config'
needs_configs = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason='needs the configs of the reference'
)


def _block(start: str) -> str:
    """The first block of the page after a text."""
    return re.search(r'```\w+\n(.+?)```', PAGE.read_text().partition(start)[2], re.DOTALL)[1]


def test_lines_of_findings():
    findings = [
        Finding('a.b', '1', 'Why ' * 30, 'b { c: 2 }', is_obstacle=True),
        Finding('d', 'x', 'Remove it.', ''),
    ]
    lines = list(tpu_report.lines('my.config', findings, cores=4))
    assert lines[0] == (
        'my.config: does not fit a TPU of 4 cores: 1 setting to change; 1 setting costs speed or '
        'accuracy there.'
    )
    assert lines[2:4] == ['1. does not fit: a.b', '   found: 1']
    assert max(map(len, lines[1:])) <= 100
    assert lines[-3:] == ['2. advice: d', '   found: x', '   why:   Remove it.']
    (line,) = tpu_report.lines('my.config', [], cores=4)
    assert line == 'my.config: fits a TPU of 4 cores.'


def test_lines_about_a_program_that_does_not_fit():
    lines = list(tpu_report.program_lines(1234, [('f32[<=7]', 'mask/Where')] * 2))
    assert lines == [
        '\nThe training step of a core is one program of 1,234 instructions: does not fit.',
        '   f32[<=7] of mask/Where',
    ]


@needs_configs
def test_the_page_shows_what_the_command_prints(monkeypatch):
    monkeypatch.chdir(SAMPLES)
    printed = CliRunner().invoke(command, ['check', '--tpu', CONFIG]).output
    findings = _block('It prints, among others:').strip().split('\n\n')
    assert len(findings) == 3
    assert [each for each in findings if each not in printed] == []


@needs_configs
def test_the_conversion_of_the_page_leaves_nothing_to_change():
    pipeline = read_pipeline(str(SAMPLES / CONFIG))
    assert any(finding.is_obstacle for finding in tpu.find(pipeline))
    changes = text_format.Parse(_block('of the old ones:'), TrainEvalPipelineConfig())
    pipeline.model.ssd.ClearField('loss')
    pipeline.train_config.ClearField('optimizer')
    for ours, change in zip(pipeline.eval_input_reader, changes.eval_input_reader, strict=True):
        ours.MergeFrom(change)
    changes.ClearField('eval_input_reader')
    pipeline.MergeFrom(changes)
    assert tpu.find(pipeline) == []
