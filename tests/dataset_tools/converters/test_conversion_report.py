import numpy as np
from PIL import Image

from object_detection.data import annotated_image, annotation_notes
from object_detection.data.annotated_image import AnnotatedImage
from object_detection.data.formats.csv_boxes import CsvSource
from object_detection.data.formats.yolo import YoloSource
from object_detection.dataset_tools.converters import conversion, conversion_report
from object_detection.dataset_tools.converters.conversion_report import Tally


def _report(*tallies: Tally) -> dict:
    facts = {'num_shards': 1, 'label_map_is_renumbered': False}
    return conversion_report.total(tallies).report() | facts


def _image(is_crowd: list[bool]) -> AnnotatedImage:
    count = len(is_crowd)
    return AnnotatedImage(
        *(b'', 'png', 20, 40, 'a.png', 'a', np.zeros((count, 4)), ('cat',) * count),
        *(np.ones(count, int), np.array(is_crowd), np.zeros(count)),
    )


def test_summary_counts_groups():
    first, second = Tally(), Tally()
    first.notes.update({annotation_notes.JOINED_SHAPES: 3, annotation_notes.JOINED_OBJECTS: 1})
    second.notes.update({annotation_notes.JOINED_SHAPES: 2, annotation_notes.JOINED_OBJECTS: 1})
    second.notes.update({annotation_notes.SEPARATE_SHAPES: 4})
    lines = conversion_report.summary(_report(first, second)).splitlines()
    assert lines[1:] == [
        'objects of several shapes, which share a class and a group: 2, of 5 shapes',
        'shapes that share a class and a group, and stay separate objects: 4; --groups all joins '
        'them',
    ]
    assert _report(first, second)['notes'][annotation_notes.JOINED_SHAPES] == 5


def test_the_summary_names_images_that_no_annotation_names(tmp_path):
    for name in 'abcde':
        Image.new('RGB', (10, 10)).save(tmp_path / f'{name}.png')
    (tmp_path / 'b.txt').write_text('0 .5 .5 .4 .4\n')
    (tmp_path / 'classes.txt').write_text('cat\n')
    yolo = YoloSource(f'{tmp_path}/classes.txt')
    report = conversion.convert(yolo, f'{tmp_path}/records/yolo', 2)
    text = 'and that are read as images without objects: 4, such as '
    [line] = [each for each in conversion_report.summary(report).splitlines() if text in each]
    named = line.partition(text)[2].split(', ')
    # Those of the shards, in which the images are in another order.
    assert len(named) == 3
    assert {*named} < {'a.png', 'c.png', 'd.png', 'e.png'}
    assert report['named_files'] == {annotated_image.NO_ANNOTATIONS: named}
    (tmp_path / 'a.csv').write_text('filename,xmin,ymin,xmax,ymax,class\nb.png,1,2,9,8,cat\n')
    report = conversion.convert(CsvSource(f'{tmp_path}/a.csv'), f'{tmp_path}/records/csv', 1)
    assert report['unlisted_images'] == 4
    text = '4 image files have names that the annotations do not list, such as a.png, c.png, d.png'
    assert text in conversion_report.summary(report).splitlines()


def test_a_set_of_crowds_is_a_warning_in_the_summary():
    tally = Tally()
    tally.add_objects(_image(is_crowd=[True, True]))
    report = _report(tally)
    assert report['ignored_objects'] == {'image/object/is_crowd': {'cat': 2}}
    text = 'No record has an object that can be trained on and evaluated: of 2, 2 are crowds'
    assert text in conversion_report.summary(report)
    assert conversion_report.warning(report).startswith(text)
    tally.add_objects(_image(is_crowd=[False, False, False]))
    assert conversion_report.summary(_report(tally)).count('\n') == 0
    tally.add_objects(_image(is_crowd=[True, True]))
    assert 'cat (4 of 7)' in conversion_report.summary(_report(tally))
    assert conversion_report.warning(_report(tally)) == ''


def test_doubtful_coordinates_are_a_problem_and_a_warning():
    tally = Tally()
    tally.counts.update(images=1, objects=4, annotations=4)
    tally.notes[annotated_image.FIRST_PIXEL] = 4
    tally.add_doubt()
    [problem] = tally.problems
    assert problem['reason'] == 'doubtful_coordinates'
    assert conversion_report.warning(_report(tally)) == problem['detail']
    tally.num_problems['box_without_area'] = 1
    assert conversion_report.warning(_report(tally)).startswith(
        '1 of 4 annotations could not be used and are left out. 4 of 4 boxes lie within'
    )
