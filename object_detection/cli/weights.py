"""`tfod weights`: published weights of backbones and of whole detectors."""

import os
from collections.abc import Sequence
from typing import Any

import click

from object_detection.cli.common import downloading, option_flags
from object_detection.models.backbones.table import KERAS_HUB


@click.group(name='weights')
def command() -> None:
    """Downloads weights of backbones (Keras applications) and of detectors.

    The detectors are those of the TensorFlow 2 zoo, torchvision, detectron2 and the Hugging Face
    Hub.
    """


@option_flags.json_option
@command.command(name='list')
def list_all() -> None:
    """Lists the backbones, with the types of feature extractors that have them, and detectors."""
    from object_detection.dataset_tools.downloads.known_files import WEIGHTS
    from object_detection.dataset_tools.downloads.published_detectors import DETECTORS

    width = max(map(len, WEIGHTS))
    lines = []
    for name, weights in WEIGHTS.items():
        use = ', '.join([weights.backbone, *weights.extractors])
        checksum = f'MD5 {weights.file.checksum}' if weights.file.checksum else 'no checksum'
        lines.append(f'{name:{width}}  {use}\n{"":{width}}  {weights.file.name}, {checksum}')
    publishers = dict.fromkeys(detector.publisher for detector in DETECTORS.values())
    for publisher in publishers:
        lines += ['', f'Detectors of the {publisher.title}, trained on {publisher.data}']
        lines.append(f'({publisher.licence}), {publisher.page}')
        lines += [
            f'  {name}{_described(detector)}'
            for name, detector in DETECTORS.items()
            if detector.publisher == publisher
        ]
    backbones = [
        {
            'name': name,
            'file': weights.file.name,
            'backbone': weights.backbone,
            'feature_extractors': weights.extractors,
        }
        for name, weights in WEIGHTS.items()
    ]
    detectors = [_as_json(name, detector) for name, detector in DETECTORS.items()]
    option_flags.show_result({'backbones': backbones, 'detectors': detectors}, lines)


def _described(detector: Any) -> str:
    """Describes a detector after its name, '' if its archive has everything that is known."""
    if detector.is_archive:
        return ''
    size = f', {detector.mebibytes:.0f} MiB' if detector.mebibytes else ''
    accuracy = f', {detector.accuracy}' if detector.accuracy else ''
    if detector.beside:
        return f'{accuracy}\n    {detector.file.path}{size}'
    change = f' with --set {detector.setting}' if detector.setting else ''
    return f'{accuracy}\n    {detector.file.name}{size}, sample config {detector.sample}{change}'


def _as_json(name: str, detector: Any) -> dict[str, Any]:
    return {
        'name': name,
        'publisher': detector.publisher.title,
        'address': f'{detector.publisher.base_url}/{detector.file.path}',
        'licence': detector.publisher.licence,
        'page': detector.publisher.page,
        'checksum': detector.file.checksum,
        'mebibytes': detector.mebibytes,
        'metrics': dict(detector.metrics),
        'sample': detector.sample,
        'setting': detector.setting,
    }


@option_flags.json_option
@command.command()
@click.argument('names', nargs=-1, required=True, metavar='NAME...')
@click.option('--output', required=True, metavar='FOLDER', help='Folder to put the files in.')
@downloading.base_url_option(
    'that of the publisher, such as https://storage.googleapis.com, e.g. a mirror of yours'
)
def download(names: tuple[str, ...], output: str, base_urls: tuple[str, ...]) -> None:
    """Downloads backbones, such as resnet50, and detectors; `tfod weights list` names all.

    A download that was stopped or cut off continues where it was. A file that is there is verified
    and not downloaded again. The archive of a detector is unpacked and then deleted. A backbone may
    also be named as in a config: keras:ConvNeXtTiny, or keras_hub:resnet_50_imagenet, of which
    KerasHub downloads a folder.
    """
    from object_detection.dataset_tools.downloads import known_files
    from object_detection.dataset_tools.downloads.published_detectors import DETECTORS

    tables = {**known_files.WEIGHTS, **DETECTORS}
    aliases = {weights.backbone: name for name, weights in known_files.WEIGHTS.items()}
    names = tuple(aliases.get(name, name) for name in names)
    for name in names:
        if name not in tables and not name.startswith(KERAS_HUB):
            known = ', '.join([*tables, f'{KERAS_HUB}<preset>'])
            raise click.UsageError(f'Expected some of: {known}. Received: {name}.')
    paths, lines = {}, []
    for name in names:
        if name.startswith(KERAS_HUB):
            paths[name] = _download_preset(name.removeprefix(KERAS_HUB), output)
            lines.append(_how_to_use_preset(paths[name]))
        elif name in DETECTORS:
            paths[name] = _download_detector(name, DETECTORS[name], output, base_urls)
            lines.append(_how_to_use_detector(paths[name], DETECTORS[name]))
        else:
            weights = known_files.WEIGHTS[name]
            urls = base_urls or known_files.WEIGHTS_BASE_URLS
            paths[name] = _fetch(name, weights.file, output, urls)
            lines.append(_how_to_use_backbone(paths[name], weights))
    option_flags.show_result(paths, lines)


def _fetch(name: str, file: Any, output: str, base_urls: Sequence[str]) -> str:
    """Downloads a `RemoteFile`; returns its path."""
    from object_detection.dataset_tools.downloads.download import Downloader

    with downloading.resumable(), downloading.show(f'downloading {name}') as report:
        return Downloader(report=report, print_line=downloading.print_line).fetch(
            file, output, base_urls
        )


def _download_detector(name: str, detector: Any, output: str, base_urls: Sequence[str]) -> str:
    """Downloads a detector unless it is there; returns its file, or the folder of an archive."""
    from object_detection.dataset_tools.downloads import archives

    file, base_urls = detector.file, base_urls or (detector.publisher.base_url,)
    if detector.beside:
        folder = os.path.join(output, name)
        paths = [_fetch(name, each, folder, base_urls) for each in detector.files]
        return paths[0]
    if not detector.is_archive:
        return _fetch(name, file, output, base_urls)
    if not archives.is_unpacked(file.name, output):
        downloaded = _fetch(name, file, output, base_urls)
        with downloading.resumable(), downloading.show(f'unpacking {file.name}') as report:
            archives.unpack(downloaded, output, report)
        os.remove(downloaded)
    return os.path.join(output, name)


def _download_preset(preset: str, output: str) -> str:
    """Has KerasHub download a preset; returns its folder."""
    from object_detection.models.backbones import keras_hub_networks

    folder = os.path.join(output, os.path.basename(preset.rstrip('/')))
    keras_hub_networks.save(preset, folder)
    return folder


def _how_to_use_preset(folder: str) -> str:
    return (
        f"{folder}\n  feature_extractor {{ backbone: '{KERAS_HUB}{folder}' }}\n"
        f'  train_config {{ fine_tune_checkpoint: "{folder}" '
        'fine_tune_checkpoint_type: "classification" }'
    )


def _how_to_use_backbone(path: str, weights: Any) -> str:
    types = ' or '.join([f"backbone: '{weights.backbone}'", *weights.extractors])
    return (
        f'{path}\n  for {types}:\n'
        f'  train_config {{ fine_tune_checkpoint: "{path}" '
        'fine_tune_checkpoint_type: "classification" }'
    )


def _how_to_use_detector(path: str, detector: Any) -> str:
    if detector.beside:
        config = os.path.join(os.path.dirname(path), detector.beside[0])
        return f'{path}\n  tfod config from_transformers {config} --weights {path}'
    checkpoint = os.path.join(path, 'checkpoint') if detector.is_archive else path
    kind = 'detection' if detector.is_archive else 'full'
    use = (
        f'{path}\n'
        f'  tfod config new --data PREFIX --weights {path}\n'
        f'  or train_config {{ fine_tune_checkpoint: "{checkpoint}" '
        f'fine_tune_checkpoint_type: "{kind}" }}'
    )
    if detector.is_archive:
        return use
    change = f' with --set {detector.setting}' if detector.setting else ''
    return f'{use}\n  of object_detection/samples/configs/{detector.sample}.config{change}'
