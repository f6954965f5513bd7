import base64
import html.parser
import re

from object_detection.visualization.report import write_report

METRICS = {
    'DetectionBoxes_Precision/mAP': 0.5,
    'DetectionBoxes_Precision/mAP (large)': -1.0,
    'DetectionMasks_Precision/mAP': 0.4375,
    'DetectionMasks_Precision/mAP (large)': 0.25,
    'DetectionBoxes_PerformanceByCategory/mAP/dog/cat': 0.75,
    'DetectionMasks_PerformanceByCategory/mAP/dog/cat': 0.625,
    'DetectionBoxes_Precision/mAP@.50IOU ByCategory/dog/cat': 0.875,
    'DetectionBoxes_PerformanceBySuperCategory/pets': 0.125,
    'Loss/total_loss': 1.25,
}


class _Checker(html.parser.HTMLParser):
    """Notes tags that are closed in the wrong order, and what would be loaded."""

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.sources += [v for k, v in attributes if k in ('src', 'href')]
        if tag not in ('meta', 'img'):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def _write(path, **changes):
    arguments = {
        'title': 'A & B',
        'loss_history': [
            {'step': step, 'losses': {'Loss/total_loss': 2.0 / step, 'Loss/mask_loss': 1.0}}
            for step in range(1, 9)
        ],
        'metrics': METRICS,
        'pictures': [('first', 'a folder/1.png'), ('<second>', b'\x89PNG...')],
        'facts': {'steps': '8'},
    }
    write_report(path, **(arguments | changes))
    return path.read_text(encoding='utf-8')


def _row(page, name):
    row = re.search(f'<tr><th>{re.escape(name)}</th>(.*?)</tr>', page)[1]
    return re.findall('>([^<]*)</td>', row)


def test_page_is_well_formed_and_needs_no_network(tmp_path):
    page = _write(tmp_path / 'report.html')
    checker = _Checker()
    checker.feed(page)
    assert checker.open == []
    embedded = 'data:image/png;base64,' + base64.b64encode(b'\x89PNG...').decode()
    assert checker.sources == ['a%20folder/1.png', 'a%20folder/1.png', embedded]
    # Names of namespaces are not loaded.
    assert 'http' not in re.sub('data:[^"]*|xmlns(:xlink)?="[^"]*"', '', page)
    assert {'A & B', '<second>', 'total loss', 'mask loss'} <= set(checker.text)


def test_boxes_and_masks_are_side_by_side(tmp_path):
    page = _write(tmp_path / 'report.html')
    assert _row(page, 'AP, mean over IoU .50 to .95') == ['0.500', '0.438']
    assert _row(page, 'AP, objects over 96² pixels') == ['&ndash;', '0.250']
    assert _row(page, 'dog/cat') == ['0.750', '0.625']
    assert _row(page, 'pets') == ['0.125']
    assert _row(page, 'Loss/total_loss') == ['1.25']


def test_every_value_is_on_the_page(tmp_path):
    page = _write(tmp_path / 'report.html')
    for name, value in METRICS.items():
        assert _row(page, name) == [f'{value:.4g}']


def test_boxes_only(tmp_path):
    page = _write(tmp_path / 'report.html', metrics={'DetectionBoxes_Precision/mAP': 0.5})
    assert _row(page, 'AP, mean over IoU .50 to .95') == ['0.500']
    assert '<th>mask</th>' not in page
    assert 'Other values' not in page


def test_empty_report(tmp_path):
    page = _write(tmp_path / 'report.html', loss_history=[], metrics={}, pictures=[], facts={})
    assert 'No values were recorded' in page
    assert '<table' not in page
    assert 'Pictures' not in page


def test_jpeg_bytes(tmp_path):
    page = _write(tmp_path / 'report.html', pictures=[('photo', b'\xff\xd8\xff')])
    assert 'data:image/jpeg;base64,' in page
