"""`tfod weights`: published weights of backbones and of whole detectors."""

import os

import click

from object_detection.cli.common import downloading, option_flags


@click.group(name='weights')
def command() -> None:
    """Downloads weights of backbones (Keras applications) and of detectors (TensorFlow 2 zoo)."""


@option_flags.json_option
@command.command(name='list')
def list_all() -> None:
    """Lists the backbones, with the feature extractors that have them, and the detectors."""
    from object_detection.dataset_tools.downloads.known_files import WEIGHTS, ZOO

    width = max(map(len, WEIGHTS))
    lines = []
    for name, weights in WEIGHTS.items():
        use = ', '.join(weights.extractors) or 'no feature extractor has it yet'
        checksum = f'MD5 {weights.file.checksum}' if weights.file.checksum else 'no checksum'
        lines.append(f'{name:{width}}  {use}\n{"":{width}}  {weights.file.name}, {checksum}')
    lines.append('Detectors, trained on COCO, with their configs:')
    lines += [f'  {name}' for name in ZOO]
    backbones = [
        {'name': name, 'file': weights.file.name, 'feature_extractors': weights.extractors}
        for name, weights in WEIGHTS.items()
    ]
    option_flags.show_result({'backbones': backbones, 'detectors': list(ZOO)}, lines)


@option_flags.json_option
@command.command()
@click.argument('names', nargs=-1, required=True, metavar='NAME...')
@click.option('--output', required=True, metavar='FOLDER', help='Folder to put the files in.')
@downloading.base_url_option('https://storage.googleapis.com, e.g. a mirror of yours')
def download(names: tuple[str, ...], output: str, base_urls: tuple[str, ...]) -> None:
    """Downloads backbones, such as resnet50, and detectors; `tfod weights list` names all.

    A download that was stopped or cut off continues where it was. A file that is there is verified
    and not downloaded again. The archive of a detector is unpacked and then deleted.
    """
    from object_detection.dataset_tools.downloads import archives, known_files
    from object_detection.dataset_tools.downloads.download import Downloader

    backbones, detectors = known_files.WEIGHTS, known_files.ZOO
    for name in names:
        if name not in backbones | detectors:
            known = ', '.join([*backbones, *detectors])
            raise click.UsageError(f'Expected some of: {known}. Received: {name}.')
    paths = {}
    for name in names:
        is_detector = name in detectors
        file = detectors[name] if is_detector else backbones[name].file
        path = os.path.join(output, name)
        if is_detector and archives.is_unpacked(file.name, output):
            paths[name] = path
            continue
        with downloading.resumable(), downloading.show(f'downloading {name}') as report:
            downloaded = Downloader(report=report, print_line=downloading.print_line).fetch(
                file, output, base_urls or known_files.WEIGHTS_BASE_URLS
            )
        if not is_detector:
            paths[name] = downloaded
            continue
        with downloading.resumable(), downloading.show(f'unpacking {file.name}') as report:
            archives.unpack(downloaded, output, report)
        os.remove(downloaded)
        paths[name] = path
    lines = [
        _how_to_use_detector(path)
        if name in detectors
        else _how_to_use_backbone(path, backbones[name].extractors)
        for name, path in paths.items()
    ]
    option_flags.show_result(paths, lines)


def _how_to_use_backbone(path: str, extractors: tuple[str, ...]) -> str:
    if not extractors:
        return f'{path}\n  No feature extractor of this toolkit has this backbone yet.'
    return (
        f'{path}\n  for {" or ".join(extractors)}:\n'
        f'  train_config {{ fine_tune_checkpoint: "{path}" '
        'fine_tune_checkpoint_type: "classification" }'
    )


def _how_to_use_detector(folder: str) -> str:
    return (
        f'{folder}\n'
        f'  tfod config new --data PREFIX --weights {folder}\n'
        f'  or train_config {{ fine_tune_checkpoint: "{os.path.join(folder, "checkpoint")}" '
        'fine_tune_checkpoint_type: "detection" }'
    )
