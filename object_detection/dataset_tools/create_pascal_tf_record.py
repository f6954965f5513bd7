r"""Converts a set of PASCAL VOC, or of a data set in its format, to a TFRecord file.

    python -m object_detection.dataset_tools.create_pascal_tf_record \
        --data_dir=VOCdevkit --year=VOC2012 --set=train --output_path=pascal_train.record

The file has a label map and a report beside it. `tfod convert voc` runs the same job for several
files, and for folders of other names.
"""

from absl import flags

from object_detection.data.formats.voc import VocSource
from object_detection.dataset_tools.converters import scripts

FLAGS = flags.FLAGS


def main() -> None:
    source = VocSource(
        FLAGS.data_dir,
        FLAGS.year,
        FLAGS.set,
        FLAGS.annotations_dir,
        ignore_difficult=FLAGS.ignore_difficult_instances,
        label_map_file=FLAGS.label_map_path,
    )
    scripts.convert_to_file(source, FLAGS.output_path)


def run() -> None:
    # Other scripts, which may be imported too, have flags of these names.
    flags.DEFINE_string('data_dir', None, 'Folder of VOC2007 and VOC2012.')
    flags.DEFINE_enum('set', 'train', ['train', 'val', 'trainval', 'test'], 'Set to convert.')
    flags.DEFINE_string('annotations_dir', 'Annotations', 'Folder of the XML files.')
    years = ['VOC2007', 'VOC2012', 'merged']
    flags.DEFINE_enum('year', 'VOC2007', years, 'Year to convert; merged converts both.')
    flags.DEFINE_string('output_path', None, 'TFRecord file to write.')
    flags.DEFINE_string('label_map_path', '', 'Label map; by default in order of the alphabet.')
    flags.DEFINE_bool(
        'ignore_difficult_instances', False, 'Leaves out objects that are marked as difficult.'
    )
    flags.mark_flags_as_required(('data_dir', 'output_path'))
    scripts.run(main)


if __name__ == '__main__':
    run()
