"""`tfod data`: downloads and converts a public data set; checks, splits or draws a data set."""

import os
import re
from collections.abc import Mapping, Sequence

import click

from object_detection.cli.common import downloading, option_flags, progress

_DATA_SETS = ['coco2017']
_SPLITS = ['train2017', 'val2017', 'test2017', 'unlabeled2017']
# Split -> name of its records and number of files.
_RECORDS = {'train2017': ('coco_train', 100), 'val2017': ('coco_val', 50)}

_SIZES_HELP = (
    'Sizes to propose: scales of a grid_anchor_generator, scales_per_octave of a '
    'multiscale_anchor_generator; 0 takes as many as the config has.'
)


@click.group(name='data')
def command() -> None:
    """Download a public data set and convert it to TFRecords; check, draw or split one of yours."""


@option_flags.json_option
@command.command(context_settings={'show_default': True})
@click.argument('name', type=click.Choice(_DATA_SETS))
@click.option('--output', required=True, metavar='FOLDER', help='Folder to put it in.')
@click.option(
    '--split',
    'splits',
    type=click.Choice(_SPLITS),
    multiple=True,
    default=('train2017', 'val2017'),
    help='What to download, with its annotations; repeatable.',
)
@click.option('--keep_archives', is_flag=True, help='Leave the archives after unpacking.')
@downloading.base_url_option('http://images.cocodataset.org, e.g. a mirror of yours')
def download(
    name: str, output: str, splits: tuple[str, ...], keep_archives: bool, base_urls: tuple[str, ...]
) -> None:
    """Downloads and unpacks a data set: OUTPUT/train2017, OUTPUT/annotations and so on.

    A download that was stopped or cut off continues where it was. Sizes and checksums are verified,
    wherever the files come from; what is complete is not downloaded again. COCO 2017 needs about
    40 GB while it is unpacked, and 21 GB afterwards.
    """
    # Imported here, since the imports are slow and `--help` does not need them.
    from object_detection.dataset_tools.downloads import coco_download, known_files

    with downloading.resumable():
        coco_download.download(
            output,
            splits,
            base_urls=base_urls or known_files.COCO_BASE_URLS,
            keep_archives=keep_archives,
            show=downloading.show,
            print_line=downloading.print_line,
        )
    lines = [f'{output}: {", ".join(splits)} with annotations']
    if set(_RECORDS) <= set(splits):
        lines.append(f'Next: tfod data convert {name} --data {output} --output {output}/records')
    option_flags.show_result({'output': output, 'splits': splits}, lines)


@option_flags.json_option
@command.command(context_settings={'show_default': True})
@option_flags.config_option()
@click.option('--output', required=True, metavar='FOLDER', help='Folder for the pictures.')
@click.option('--count', default=8, type=click.IntRange(min=1), help='How many pictures.')
@click.option('--seed', default=0, help='Of the order and the augmentations.')
@click.option('--eval', 'of_eval', is_flag=True, help='Draw the first eval_input_reader instead.')
@click.option(
    '--augmentation', is_flag=True, help='Draw what each augmentation step makes of one image.'
)
@click.option('--all_steps', is_flag=True, help='The same, for all steps that the toolkit has.')
@click.option(
    '--image', default=0, type=click.IntRange(min=0), help='Number of the image to augment.'
)
@click.option(
    '--draws', default=4, type=click.IntRange(1, 20), help='Results of each step to draw.'
)
@option_flags.set_option()
def show(
    config: str,
    output: str,
    count: int,
    seed: int,
    of_eval: bool,
    augmentation: bool,
    all_steps: bool,
    image: int,
    draws: int,
    settings: tuple[str, ...],
) -> None:
    """Draws what a model is trained on: augmented images with boxes, masks and class names.

    Writes OUTPUT/NUMBER_SOURCEID.png, and all of them on OUTPUT/contact_sheet.png. A look at it
    finds swapped classes, shifted boxes and augmentations that go too far before a training does.

    With --augmentation, draws one training image before and after each step of
    data_augmentation_options alone, and after all of them: OUTPUT/NUMBER_STEP.png,
    OUTPUT/all_in_order.png, and a row for each on OUTPUT/contact_sheet.png.
    """
    if of_eval and (augmentation or all_steps):
        raise click.UsageError('--eval: images of evaluations are not augmented.')
    from object_detection.config.reader import read_pipeline
    from object_detection.system import tensorflow_setup
    from object_detection.validation.validate import validate

    pipeline = read_pipeline(config, settings=settings)
    validate(pipeline, for_what='eval' if of_eval else 'train')
    tensorflow_setup.import_tensorflow()
    from object_detection.system import disk
    from object_detection.training.monitoring import step_pictures

    if augmentation or all_steps:
        with progress.show('drawing', 'steps') as report, disk.full_disk_named(output):
            drawn = step_pictures.write(
                pipeline,
                output,
                image=image,
                draws=draws,
                seed=seed,
                all_steps=all_steps,
                progress=report,
            )
        _show_pictures(output, drawn.pictures, drawn.left_out)
        return
    with progress.show('drawing') as report, disk.full_disk_named(output):
        written = step_pictures.write_inputs(
            pipeline,
            output,
            count=count,
            seed=seed,
            eval_reader=0 if of_eval else None,
            progress=report,
        )
    _show_pictures(output, written, {})


def _show_pictures(output: str, pictures: Sequence[str], left_out: Mapping[str, str]) -> None:
    lines = [f'not drawn: {name}: {reason}' for name, reason in left_out.items()]
    lines.append(f'{len(pictures)} pictures and contact_sheet.png in {output}')
    option_flags.show_result({'output': output, 'pictures': pictures, 'not_drawn': left_out}, lines)


@option_flags.json_option
@command.command(context_settings={'show_default': True})
@click.argument('name', type=click.Choice(_DATA_SETS))
@click.option('--data', required=True, metavar='FOLDER', help='Folder that it was downloaded to.')
@click.option(
    '--output',
    required=True,
    metavar='FOLDER',
    help='Folder of the TFRecords (`tfod convert coco` takes a PREFIX of files instead).',
)
@click.option(
    '--masks/--no_masks',
    default=True,
    help='Write instance masks; on here, as COCO has them, and off in `tfod convert coco`.',
)
@click.option(
    '--workers',
    '--num_workers',
    'workers',
    default=1,
    help='Local processes; each writes whole files.',
)
def convert(name: str, data: str, output: str, masks: bool, workers: int) -> None:
    """Converts the training and validation images of a downloaded data set to TFRecords.

    Writes OUTPUT/coco_train-?????-of-00100 and OUTPUT/coco_val-?????-of-00050, with label maps and
    reports, as two calls of `tfod convert coco` would.
    """
    from object_detection.cli import convert as convert_command

    for split, (prefix, shards) in _RECORDS.items():
        click.echo(f'{split}:')
        click.get_current_context().invoke(
            convert_command.command.commands['coco'],
            image_dir=os.path.join(data, split),
            annotations_file=os.path.join(data, 'annotations', f'instances_{split}.json'),
            output=os.path.join(output, prefix),
            shards=shards,
            masks=masks,
            workers=workers,
        )


@option_flags.json_option
@command.command(context_settings={'show_default': True})
@click.option('--annotations', default='', help='COCO JSON file of all images.')
@click.option(
    '--records', multiple=True, metavar='FILES', help='TFRecord files or patterns; repeatable.'
)
@click.option(
    '--output', required=True, metavar='FOLDER', help='Folder of train.json and val.json, or files.'
)
@click.option(
    '--val_share',
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.2,
    help='Share of the images to hold out for validation.',
)
@click.option(
    '--share',
    'shares',
    multiple=True,
    metavar='NAME=SHARE',
    help='Part of --records and its share, in place of train and val; repeatable.',
)
@click.option('--shards', default=1, type=click.IntRange(1, 99_999), help='Files of each part.')
@click.option('--seed', default=0, help='The same seed draws the same images.')
def split(
    annotations: str,
    records: tuple[str, ...],
    output: str,
    val_share: float,
    shares: tuple[str, ...],
    shards: int,
    seed: int,
) -> None:
    """Hold out images for validation.

    Writes train.json and val.json from one COCO JSON file; or OUTPUT/train-?????-of-????? and
    OUTPUT/val-?????-of-????? from TFRecords. train.txt and val.txt list the images of both, for
    `tfod eval --detections ... --image_list`. The part of a record follows from its source id, and
    no image is in two parts.

    Images of one scene or one video belong into the same part; this command draws them at random
    and cannot know.
    """
    if bool(annotations) == bool(records):
        raise click.UsageError('Expected one of --annotations and --records.')
    if records:
        _split_records(records, output, _shares(shares, val_share), shards, seed)
    elif shares or shards != 1:
        raise click.UsageError('--share and --shards: expected --records.')
    else:
        _split_coco(annotations, output, val_share, seed)


def _shares(texts: Sequence[str], val_share: float) -> dict[str, float]:
    if not texts:
        return {'train': 1 - val_share, 'val': val_share}
    shares = {}
    for text in texts:
        name, _, share = text.partition('=')
        try:
            if not re.fullmatch(r'[\w.-]+', name) or name in shares:
                raise ValueError
            shares[name] = float(share)
        except ValueError:
            raise click.BadParameter(
                f'expected NAME=SHARE with another name for each part, such as test=0.1. '
                f'Received: {text!r}.',
                param_hint='--share',
            ) from None
    return shares


def _split_records(
    records: Sequence[str], output: str, shares: dict[str, float], shards: int, seed: int
) -> None:
    from object_detection.dataset_tools.inspection import record_sets, record_split

    with progress.show('splitting', 'records') as report:
        parts = record_split.split(
            record_sets.find_files(records),
            output,
            shares,
            seed=seed,
            shards=shards,
            progress=report,
        )
    lines = []
    for part in parts.values():
        objects = ', '.join(f'{name} {count}' for name, count in part.objects.most_common())
        pattern = f'{part.paths[0][: -len("00000-of-00000")]}?????-of-{shards:05d}'
        lines.append(f'{pattern}: {part.num_records} records; objects: {objects or "none"}')
    option_flags.show_result(parts, lines)


def _split_coco(annotations: str, output: str, val_share: float, seed: int) -> None:
    from object_detection.dataset_tools import coco_split

    parts = coco_split.split(annotations, output, val_share=val_share, seed=seed)
    lines = []
    for name, part in parts.items():
        objects = ', '.join(f'{category} {count}' for category, count in part.objects.most_common())
        lines.append(
            f'{output}/{name}.json: {part.num_images} images; objects: {objects or "none"}'
        )
    missing = parts['train'].objects.keys() - parts['val'].objects.keys()
    if missing:
        lines.append(f'No object in val.json of: {", ".join(sorted(missing))}. Another --seed?')
    option_flags.show_result(parts, lines)


@command.command(context_settings={'show_default': True})
@click.argument('data', nargs=-1, required=True, metavar='FILES|CONFIG')
@click.option('--output', default='data_check.html', metavar='FILE', help='The page to write.')
@click.option('--json', 'json_path', default='', metavar='FILE', help='Also write a JSON file.')
@click.option(
    '--image_counts',
    default='',
    metavar='FILE',
    help='Also write the label map with the number of images of each class, for '
    'repeat_factor_sampling and federated losses.',
)
@click.option('--label_map', default='', metavar='FILE', help='Label map of FILES.')
@click.option(
    '--workers',
    default=None,
    type=click.IntRange(min=1),
    show_default='one a CPU core',
    help='Processes that check records.',
)
@click.option(
    '--decode/--no_decode',
    'decodes',
    default=True,
    help='Decode images and masks; without, only their headers are read.',
)
@click.option(
    '--model',
    default='',
    metavar='PATH',
    help='Rank the labels by how much this model doubts them: an export, SavedModel or model_dir.',
)
@click.option(
    '--top',
    default=100,
    type=click.IntRange(min=1),
    help='Ranked labels on the page; the JSON file has all.',
)
@option_flags.set_option()
def check(
    data: tuple[str, ...],
    output: str,
    json_path: str,
    image_counts: str,
    label_map: str,
    workers: int | None,
    decodes: bool,
    model: str,
    top: int,
    settings: tuple[str, ...],
) -> None:
    """Checks all records for what hurts a training, and describes them on a page.

    DATA are TFRecord files or patterns of them, or a pipeline config, of which all input readers
    are checked, and the fit of the anchors. The exit status is 1 if something would hurt training.

    With --model, the page shows the labels that are probably missing, of a wrong class, badly drawn
    or of nothing. A model that was trained without these images finds more of them.
    """
    from object_detection.dataset_tools.inspection import check_command
    from object_detection.system import cpu, tensorflow_setup

    detector = None
    if model:
        tensorflow_setup.import_tensorflow()
        from object_detection.prediction import loading

        detector = loading.load(model)
    with progress.show('checking', 'records') as report:
        result = check_command.check(
            data,
            label_map_path=label_map,
            settings=settings,
            workers=workers or max(1, int(cpu.num_cores())),
            decodes=decodes,
            progress=report,
        )
    if detector is not None:
        with progress.show('ranking labels') as report:
            result = check_command.rank_labels(result, detector, top, progress=report)
    result.write(output, json_path, image_counts)
    click.echo(result.overview())
    click.echo(f'{output}: the page{f", {json_path}: for programs" if json_path else ""}')
    if result.is_harmful:
        raise SystemExit(1)


@option_flags.json_option
@command.command(context_settings={'show_default': True})
@option_flags.config_option()
@click.option('--output', default='', metavar='FILE', help='Write the fragment to a file, too.')
@click.option('--num_sizes', default=0, type=click.IntRange(0, 50), help=_SIZES_HELP)
@click.option(
    '--num_aspects',
    default=0,
    type=click.IntRange(0, 50),
    help='Aspects to propose; 0 takes as many as the config has.',
)
@click.option('--seed', default=0, help='Of the sample of boxes and of k-means.')
@click.option('--workers', default=1, type=click.IntRange(min=1), help='Processes that read.')
@option_flags.set_option()
def anchors(
    config: str,
    output: str,
    num_sizes: int,
    num_aspects: int,
    seed: int,
    workers: int,
    settings: tuple[str, ...],
) -> None:
    """Proposes anchors that fit the boxes of the training data.

    Prints a fragment of a config with the generator that the config has, its sizes and aspects
    found by k-means over the boxes as the config's resizer leaves them, and the share of objects
    that an anchor matches, before and after.
    """
    from object_detection.dataset_tools.inspection import check_command
    from object_detection.system import files

    with progress.show('reading', 'records') as report:
        text, summary = check_command.propose_anchors(
            config,
            settings=settings,
            counts=(num_sizes, num_aspects),
            seed=seed,
            workers=workers,
            progress=report,
        )
    if output:
        files.write_text(output, text)
    option_flags.show_result({'fragment': text, 'summary': summary}, [text, summary])
