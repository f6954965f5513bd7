r"""Converts AVA's actions in videos to TFRecords of tf.SequenceExamples.

    python -m object_detection.dataset_tools.create_ava_actions_tf_record \
        --path_to_download_data=annotations --path_to_output_dir=DIR \
        --video_path_format_string='videos/{0}.mp4'

The folder has the files of https://research.google.com/ava/ unpacked: ava_train_v2.2.csv,
ava_train_excluded_timestamps_v2.2.csv, those of val, and
ava_action_list_v2.2_for_activitynet_2019.pbtxt. Writes DIR/train-?????-of-01000 and
DIR/val-?????-of-00100 with label maps and reports. A frame of each second is taken out of the
videos by OpenCV, and kept in DIR/frames; `--frames_format_string` names such frames that are there
already. `tfod convert ava` runs the same job.
"""

import collections
import os
from collections.abc import Iterable

from absl import app, flags

from object_detection.data.file_access import LocalFiles
from object_detection.data.formats import source as formats_source
from object_detection.data.formats.ava import AvaSource
from object_detection.dataset_tools.converters import scripts
from object_detection.dataset_tools.converters.sharded_writer import BeamFiles
from object_detection.errors import UserError
from object_detection.system import files as system_files

_NUM_SHARDS = {'train': 1000, 'val': 100}
_LABEL_MAP = 'ava_action_list_v2.2_for_activitynet_2019.pbtxt'
_FRAMES = 'frames/{video}/{video}_{second:06d}.jpg'
_QUALITY = 95

FLAGS = flags.FLAGS


def main() -> None:
    if bool(FLAGS.video_path_format_string) == bool(FLAGS.frames_format_string):
        raise app.UsageError('Give --video_path_format_string or --frames_format_string.')
    splits = FLAGS.splits_to_process.split(',')
    if unknown := {*splits} - {*_NUM_SHARDS}:
        raise app.UsageError(
            f'--splits_to_process: expected train, val or both, as the test split has no '
            f'annotations. Received: {", ".join(sorted(unknown))}.'
        )
    for split in splits:
        source = _source(split)
        if FLAGS.video_path_format_string:
            _extract_frames(source)
        prefix = os.path.join(FLAGS.path_to_output_dir, split)
        scripts.convert(source, prefix, FLAGS.num_shards or _NUM_SHARDS[split], name=split)


def _source(split: str) -> AvaSource:
    folder = FLAGS.path_to_download_data
    label_map = os.path.join(folder, _LABEL_MAP)
    if not BeamFiles().exists(label_map):
        raise FileNotFoundError(
            f'There is no {label_map}; expected the files of https://research.google.com/ava/, '
            'unpacked, in --path_to_download_data.'
        )
    excluded = os.path.join(folder, f'ava_{split}_excluded_timestamps_v2.2.csv')
    return AvaSource(
        label_map_file=label_map,
        annotations_file=os.path.join(folder, f'ava_{split}_v2.2.csv'),
        excluded_file=excluded if BeamFiles().exists(excluded) else '',
        frames=FLAGS.frames_format_string or os.path.join(FLAGS.path_to_output_dir, _FRAMES),
        seconds_per_sequence=FLAGS.seconds_per_sequence,
        hop_between_sequences=FLAGS.hop_between_sequences,
        examples=FLAGS.examples_for_context,
    )


def _extract_frames(source: AvaSource) -> None:
    """Takes the frames that a conversion reads out of the videos; leaves those that are there."""
    seconds = collections.defaultdict(dict)
    for entry in source.entries(LocalFiles()):
        for image, *_ in formats_source.frames_of(entry):
            if not os.path.exists(image['file_name']):
                seconds[image['video']][image['second']] = image['file_name']
    for video, paths in seconds.items():
        # The conversion counts the frames of videos that are absent.
        if path := _video_file(FLAGS.video_path_format_string.format(video)):
            _extract(path, paths.items())


def _video_file(path: str) -> str:
    """Returns the path of a video, which may be given without suffix; '' if it is absent."""
    matches = [path] if os.path.isfile(path) else system_files.matches(f'{path}.*')
    return next(iter(matches), '')


def _extract(path: str, frames: Iterable[tuple[int, str]]) -> None:
    try:
        import cv2
    except ImportError as error:
        raise UserError(
            '--video_path_format_string needs OpenCV: pip install opencv-python-headless. Or give '
            '--frames_format_string for frames that are files already.'
        ) from error
    video = cv2.VideoCapture(path)
    try:
        for second, frame_path in frames:
            video.set(cv2.CAP_PROP_POS_MSEC, second * 1000)
            is_read, frame = video.read()
            if is_read:
                os.makedirs(os.path.dirname(frame_path), exist_ok=True)
                _, encoded = cv2.imencode('.jpg', frame, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
                with system_files.replacing(frame_path) as draft, open(draft, 'wb') as file:
                    file.write(encoded.tobytes())
    finally:
        video.release()


def run() -> None:
    # Other scripts, which may be imported too, have flags of these names.
    flags.DEFINE_string('path_to_download_data', '', 'Folder of the CSV files and the label map.')
    flags.DEFINE_string('path_to_output_dir', '', 'Folder to write to.')
    flags.DEFINE_string('splits_to_process', 'train,val', 'Splits, with commas between them.')
    flags.DEFINE_string(
        'video_path_format_string', None, 'Path of a video, with or without suffix: videos/{0}.'
    )
    flags.DEFINE_integer('seconds_per_sequence', 10, 'Seconds in each sequence.', lower_bound=1)
    flags.DEFINE_integer(
        'hop_between_sequences', 10, 'Seconds between beginnings of sequences.', lower_bound=1
    )
    flags.DEFINE_bool(
        'examples_for_context', False, 'Writes tf.Examples for context features instead.'
    )
    # Not in the reference system.
    flags.DEFINE_string(
        'frames_format_string', None, 'Path of a frame: frames/{video}/{second:06d}.jpg.'
    )
    flags.DEFINE_integer('num_shards', 0, 'Number of files; 0 for 1000 of train, 100 of val.')
    scripts.run(main)


if __name__ == '__main__':
    run()
