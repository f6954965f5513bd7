"""Predicts step times of many accelerators from measured overheads, published speeds and links.

    python benchmarks/scaling_prediction.py
    python benchmarks/scaling_prediction.py --count 16 --batch 2 --cores 6

Computes, and measures nothing. What was measured are the constants of scaling_model.py; newer
results in benchmarks/results, and flags, go before them. docs/scaling.md explains the tables.
"""

import dataclasses
import math
import pathlib

import click
import measure
import own_process
from scaling_model import (
    ACCELERATORS,
    MACHINE,
    NETWORKS,
    PUBLISHED,
    Accelerator,
    Assumed,
    Measured,
    Model,
    Network,
    Settings,
    read_measured,
    skip_seconds,
)

COUNTS = (8, 64, 512)
COCO_IMAGES, COCO_BOXES, COCO_BYTES = 118_287, 860_001, 19_336_861_798
EVALUATION_IMAGES = 5000
# Images a second of inference on one A100, FP16, batch 6, as NVIDIA published them.
INFERENCE_SPEED = 60.79
PACK = 25_000_000


def settings_rows(model: Model, accelerator: Accelerator, network: Network, count: int) -> list:
    """What settings make of a slow network, one row each."""
    variants = {
        'as it is by default': Settings(),
        'in_bfloat16': Settings(in_bfloat16=True),
        'jit_compile: false': Settings(jit_compile=False),
        'jit_compile: false, bytes_per_pack': Settings(jit_compile=False, bytes_per_pack=PACK),
        'the same and in_bfloat16': Settings(
            jit_compile=False, bytes_per_pack=PACK, in_bfloat16=True
        ),
        '8 images in 2 parts': Settings(batch=8, parts=2),
        '8 images in 2 parts, in_bfloat16': Settings(batch=8, parts=2, in_bfloat16=True),
        'RING in place of NCCL': Settings(uses_nccl=False),
        'a quarter of a core for the input': Settings(cores=0.25),
    }
    return [
        {'settings': name, **model.step(accelerator, network, count, settings)}
        for name, settings in variants.items()
    ]


def batch_rows(model: Model, network: Network, accelerator: Accelerator) -> list:
    """Global batches, and what becomes of a training of 12 epochs of COCO and an evaluation."""
    rows = []
    for count in COUNTS:
        for batch in (1, 2, 4):
            row = model.step(accelerator, network, count, Settings(batch=batch))
            images, machines = count * batch, math.ceil(count / MACHINE)
            steps = COCO_IMAGES / images
            # Each process pastes the masks of its images, one after the other.
            evaluation = EVALUATION_IMAGES / (count * INFERENCE_SPEED)
            evaluation += model.measured.paste_seconds / machines + model.measured.metrics_seconds
            rows.append(
                {
                    'count': count,
                    'batch': batch,
                    'global_batch': images,
                    'rate': 0.02 * images / 16,
                    'steps': steps,
                    'warmup': 0.3 * steps,
                    'epoch': steps * row['step'],
                    'hours': 12 * steps * row['step'] / 3600,
                    'evaluation': evaluation,
                }
            )
    return rows


def failure_rows(model: Model, network: Network, accelerator: Accelerator) -> list:
    """How often to save, and what failures cost, where all start again after each."""
    rows, measured, assumed = [], model.measured, model.assumed
    for count in COUNTS:
        step = model.step(accelerator, network, count, Settings())['step']
        machines = math.ceil(count / MACHINE)
        between = assumed.machine_days * 86400 / machines
        # Young, 1974: the interval that loses least.
        interval = math.sqrt(2 * measured.save_seconds * between)
        skip = skip_seconds(measured, COCO_IMAGES, COCO_BYTES, machines)
        restart = measured.noticed_seconds + measured.start_seconds + assumed.build_seconds + skip
        lost = {
            'interval': interval,
            'lost': measured.save_seconds / interval + (interval / 2 + restart) / between,
        }
        default = 1000 * step
        rows.append(
            {
                'count': count,
                'days': between / 86400,
                'saving': measured.save_seconds / default,
                'restart': restart,
                'default_lost': measured.save_seconds / default + (default / 2 + restart) / between,
                **lost,
                'steps': interval / step,
            }
        )
    return rows


def input_rows(model: Model) -> list:
    """What the input of a machine has to give, so that accelerators wait for nothing."""
    rows = []
    for accelerator in ACCELERATORS.values():
        speed = max(accelerator.speeds.values())
        rows.append(
            {
                'accelerator': accelerator.name,
                'speed': speed,
                'cores': speed / model.measured.images_per_core,
                'machine_cores': MACHINE * speed / model.measured.images_per_core,
                'megabytes': MACHINE * speed * COCO_BYTES / COCO_IMAGES / 1e6,
            }
        )
    return rows


def published_rows(model: Model) -> list:
    """Published efficiencies beside predicted ones, without the first pass that others have not."""
    rows = []
    for each in PUBLISHED:
        one, many = (
            model.step(
                Accelerator(each.name, {4: each.speed}),
                NETWORKS[each.network],
                count,
                Settings(jit_compile=False),
            )['efficiency']
            for count in (each.base, each.count)
        )
        rows.append({**each._asdict(), 'predicted': many / one})
    return rows


def data_rows(model: Model) -> list:
    """COCO and a set of a billion boxes of such images: conversion, shuffling, resuming."""
    measured, rows = model.measured, []
    for name, boxes in (('COCO train2017', COCO_BOXES), ('a billion boxes', 1e9)):
        images = boxes / COCO_BOXES * COCO_IMAGES
        size = images / COCO_IMAGES * COCO_BYTES
        rows.append(
            {
                'name': name,
                'images': images,
                'terabytes': size / 1e12,
                'convert_hours': images / measured.convert_rate / 3600,
                'json_hours': boxes * measured.json_seconds / 3600,
                'json_gigabytes': boxes * measured.json_bytes / 1e9,
                'count_seconds': images * measured.count_seconds,
                'buffer_megabytes': 2048 * size / images / 1e6,
                **{
                    f'skip_{pipelines}': skip_seconds(measured, images, size, pipelines)
                    for pipelines in (1, 8, 64)
                },
            }
        )
    return rows


def _ms(key: str, heading: str) -> tuple[str, str, str]:
    return key, f'{heading} ms', '{:.1f}'


_PARTS = tuple(
    _ms(key, heading)
    for key, heading in (
        ('compute', 'compute'),
        ('first_pass', 'first pass'),
        ('jitter', 'slowest'),
        ('reduction', 'reduction'),
        ('hidden', 'hidden'),
        ('host', 'host'),
        ('input', 'input'),
        ('step', 'step'),
    )
)
_RESULT = (
    ('images_per_second', 'images/s', '{:.0f}'),
    ('efficiency', 'efficiency', '{:.2f}'),
    ('waits_for', 'waits for', '{}'),
)
_COLUMNS = {
    'steps': (('network', 'between machines', '{}'), ('count', 'n', '{}'), *_PARTS, *_RESULT),
    'settings': (('settings', 'settings', '{}'), *_PARTS, *_RESULT),
    'batches': (
        ('count', 'n', '{}'),
        ('batch', 'images each', '{}'),
        ('global_batch', 'batch_size', '{}'),
        ('rate', 'rate', '{:.3g}'),
        ('steps', 'steps an epoch', '{:.0f}'),
        ('warmup', 'warm-up steps', '{:.0f}'),
        ('epoch', 'epoch s', '{:.0f}'),
        ('hours', '12 epochs h', '{:.2f}'),
        ('evaluation', 'evaluation s', '{:.1f}'),
    ),
    'failures': (
        ('count', 'n', '{}'),
        ('days', 'days between', '{:.1f}'),
        ('restart', 'restart s', '{:.0f}'),
        ('saving', 'saving', '{:.2%}'),
        ('default_lost', 'lost', '{:.2%}'),
        ('interval', 'best interval s', '{:.0f}'),
        ('steps', 'steps', '{:.0f}'),
        ('lost', 'lost then', '{:.2%}'),
    ),
    'input': (
        ('accelerator', 'accelerator', '{}'),
        ('speed', 'images/s', '{:.2f}'),
        ('cores', 'cores for one', '{:.2f}'),
        ('machine_cores', 'for eight', '{:.1f}'),
        ('megabytes', 'files of eight, MB/s', '{:.0f}'),
    ),
    'published': (
        ('name', 'system', '{}'),
        ('base', 'from', '{}'),
        ('count', 'to', '{}'),
        ('efficiency', 'published', '{:.2f}'),
        ('predicted', 'predicted', '{:.2f}'),
    ),
    'data': (
        ('name', 'data', '{}'),
        ('images', 'images', '{:,.0f}'),
        ('terabytes', 'TB', '{:.3g}'),
        ('convert_hours', 'conversion CPU h', '{:.3g}'),
        ('json_hours', 'one JSON h', '{:.3g}'),
        ('json_gigabytes', 'GB', '{:,.1f}'),
        ('count_seconds', 'counting s', '{:,.0f}'),
        ('buffer_megabytes', 'shuffle MB', '{:.0f}'),
        *((f'skip_{n}', f'skip s, {n} pipelines', '{:,.0f}') for n in (1, 8, 64)),
    ),
}


def _with_flags(command):
    for field in reversed(dataclasses.fields(Measured)):
        help_text = f'Measured by {field.metadata["command"]}; {field.default:g} if not.'
        command = click.option(f'--{field.name}', type=float, help=help_text)(command)
    return command


@click.command(help='Predicts step times and efficiency of 8, 64 and 512 accelerators.')
@click.option('--count', 'counts', multiple=True, type=int, default=COUNTS, help='Repeat.')
@click.option('--batch', default=4, show_default=True, help='Images an accelerator.')
@click.option('--cores', default=6.0, show_default=True, help='Cores for the input of each.')
@click.option(
    '--accelerator',
    type=click.Choice(list(ACCELERATORS)),
    default='A100-AMP',
    show_default=True,
    help='Of which the speed is published.',
)
@click.option(
    '--slow_network', type=click.Choice(list(NETWORKS)), default='ethernet25', show_default=True
)
@click.option('--link_share', default=Assumed.link_share, show_default=True, help='Assumed.')
@click.option('--jitter', default=Assumed.jitter, show_default=True, help='Assumed.')
@click.option(
    '--results',
    type=click.Path(path_type=pathlib.Path),
    default=measure.RESULTS,
    help='Folder of what was measured.',
)
@click.option(
    '--json',
    'path',
    type=click.Path(path_type=pathlib.Path),
    default=measure.RESULTS / 'scaling_prediction.json',
    help='Where to write the results, a list of objects.',
)
@_with_flags
def main(
    counts, batch, cores, accelerator, slow_network, link_share, jitter, results, path, **given
):
    measured = read_measured(results, given)
    model = Model(measured, assumed=Assumed(link_share=link_share, jitter=jitter))
    chosen, fast = ACCELERATORS[accelerator], NETWORKS['efa400']
    slow, settings = NETWORKS[slow_network], Settings(batch=batch, cores=cores)
    middle = sorted(counts)[len(counts) // 2]
    tables = {
        'steps': [
            model.step(chosen, network, count, settings)
            for network in NETWORKS.values()
            for count in counts
        ],
        'settings': settings_rows(model, chosen, slow, middle),
        'batches': batch_rows(model, fast, chosen),
        'input': input_rows(model),
        'failures': failure_rows(model, fast, chosen),
        'data': data_rows(model),
        'published': published_rows(model),
    }
    titles = {
        'steps': f'{chosen.name}, {batch} images each, default settings',
        'settings': f'{chosen.name}, {middle} accelerators, {slow.name}',
        'batches': f'{chosen.name}, {fast.name}, 12 epochs of COCO',
        'failures': f'a failure in {model.assumed.machine_days:g} days of a machine of {MACHINE}',
        'input': f'input of machines of {MACHINE}, records of COCO',
        'data': 'data sets',
        'published': 'efficiencies of other systems',
    }
    click.echo(f'measured: {dataclasses.asdict(measured)}')
    for name, rows in tables.items():
        shown = [_in_milliseconds(name, row) for row in rows]
        click.echo('\n'.join(['', titles[name], *own_process.table(_COLUMNS[name], shown)]))
    measure.write([{'table': name, **row} for name in tables for row in tables[name]], path)


def _in_milliseconds(table: str, row: dict) -> dict:
    if table not in ('steps', 'settings'):
        return row
    return row | {key: 1000 * row[key] for key, _, _ in _PARTS}


if __name__ == '__main__':
    main()
