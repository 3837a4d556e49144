"""What a visitor sees of `dasp demo`, in the order in which it happens: one page for all tests."""

import re
from pathlib import Path

from PIL import Image

from dasp.page.demo import FIRST

WIDE = {"width": 1280, "height": 900}


def batches(tab):
    return int(tab.evaluate("document.body.dataset.batches ?? 0"))


def wait_for_batches(tab, count):
    tab.until(f"Number(document.body.dataset.batches) >= {count}")


def pause(tab):
    if tab.inner_text("#play .word") == "Pause":
        tab.click("#play")
    tab.until("document.querySelector('#play .word').textContent === 'Play'")


def percent(tab, lane):
    text = tab.inner_text(f"#overall li:has-text('{lane}') b")
    return float(text.rstrip("%"))


def in_sight(tab, selector):
    """Whether the first element that matches is wholly on the screen, without scrolling."""
    box = tab.locator(selector).first.bounding_box()
    size = tab.viewport_size
    return box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


def test_it_opens_on_a_still_clean_stream_then_tells_its_story_once(visit, photograph):
    tab = visit(viewport=WIDE)
    assert tab.title() == "dasp: a sensor goes bad"
    tab.until("document.body.dataset.batches === '1'")
    assert "all sensors are clean" in tab.inner_text("#really")
    assert tab.inner_text("#scenes [aria-current]") == "clean"
    assert tab.is_checked("input[value=story]")
    photograph(tab, "still")
    for scene, found in (("traffic", "audio"), ("fog", "video")):
        tab.until(f"document.querySelector('#scenes [aria-current]')?.textContent === '{scene}'")
        tab.until(f"document.getElementById('verdict').dataset.biased === '{found}'")
    tab.until("document.getElementById('note').textContent.includes('That was the story')")
    assert tab.inner_text("#play .word") == "Play"
    assert batches(tab) == 15
    rows = tab.evaluate(
        "[...document.querySelectorAll('rect.band')].map(r => [r.dataset.row, r.dataset.said])"
    )
    for modality in ("audio", "video"):
        assert [modality, "true"] in rows
        assert [modality, "false"] in rows
    assert percent(tab, FIRST) > percent(tab, "Source")
    heights = (  # of a line on the screen, on average: a low number is high up
        "(name => { const line = document.querySelector(`path[data-series=${name}]`);"
        "const at = k => line.getPointAtLength(line.getTotalLength() * k / 100).y;"
        "return [...Array(101).keys()].reduce((sum, k) => sum + at(k), 0) / 101; })"
    )
    assert tab.evaluate(f"{heights}('{FIRST}')") < tab.evaluate(f"{heights}('Source')")
    photograph(tab, "desktop-light")


def test_accuracy_is_in_sight_without_scrolling(visit, photograph):
    tab = visit(viewport=WIDE)
    assert in_sight(tab, "#overall")
    assert in_sight(tab, "#charts figure")  # the first is the accuracy
    assert "accuracy" in tab.inner_text("#charts figure >> nth=0").lower()
    phone = visit(viewport={"width": 390, "height": 844}, has_touch=True, device_scale_factor=2)
    phone.wait_for_selector("#overall li")
    assert in_sight(phone, "#overall")
    assert in_sight(phone, "#diagnosis")
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    photograph(phone, "phone-390")


def test_another_method_starts_over_and_a_miss_is_explained(visit, photograph):
    tab = visit(viewport=WIDE)
    tab.select_option("#method", "DASP")
    tab.until("document.getElementById('diagnosis').textContent.startsWith('Back at')")
    assert tab.input_value("#method") == "DASP"
    tab.click("text=both at once")
    tab.until("document.getElementById('miss').textContent.includes('compares them with each')")
    assert tab.is_visible("#miss")
    pause(tab)
    photograph(tab, "missed")
    tab.select_option("#stage", "worn on the body")
    tab.until("document.getElementById('error').textContent.includes('dasp data fetch dsa')")
    assert tab.input_value("#stage") == "seen and heard"
    tab.select_option("#method", FIRST)
    tab.until(
        f"[...document.querySelectorAll('.legend')].some(l => l.textContent.includes('{FIRST}'))"
    )
    tab.click("#step")
    wait_for_batches(tab, 1)


def test_one_sample_stands_clean_beside_damaged(visit):
    tab = visit()
    tab.click("#step")
    tab.wait_for_selector("#pair img")
    sources = tab.evaluate("[...document.querySelectorAll('#pair img')].map(i => i.src)")
    assert len(sources) == 4
    assert sources[:2] != sources[2:]


def test_the_stream_is_saved_as_csv_and_png(visit):
    tab = visit()
    wait_for_batches(tab, 1)
    before = batches(tab)
    with tab.expect_download() as table:
        tab.click("#csv")
    head, *rows = Path(table.value.path()).read_text().splitlines()
    assert head.startswith("n,")
    assert [row.partition(",")[0] for row in rows] == [str(n) for n in range(len(rows))]
    assert len(rows) >= before
    wait_for_batches(tab, len(rows))  # a step may still be on its way to the page
    with tab.expect_download() as picture:
        tab.click("#png")
    assert picture.value.suggested_filename == "stream.png"
    with Image.open(picture.value.path()) as image:
        assert image.size[0] > 600
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50  # lines and words, not one ground


def test_the_sound_of_a_sample_can_be_heard(visit):
    tab = visit()
    tab.wait_for_selector("#cards .sound")
    with tab.expect_response(re.compile(r"/sound/.*\.wav")) as answer:
        tab.click("#cards .sound >> nth=0")
    assert answer.value.ok
    assert answer.value.body()[:4] == b"RIFF"
    assert tab.locator("#cards .sample:visible").count() == 4
    sizes = tab.evaluate("[...document.querySelectorAll('#cards img')].map(i => i.naturalWidth)")
    assert sizes == [64] * 8
    with tab.expect_response(re.compile(r"/sound/.*/4\.wav")) as answer:
        tab.click("#pair .sound >> nth=0")  # as recorded
    assert answer.value.ok


def test_damage_by_hand_takes_over_from_the_order(visit):
    tab = visit()
    tab.select_option("select[aria-label='Corruption of audio']", "traffic")
    tab.until("document.querySelector('input[value=manual]').checked")
    tab.click("#step")
    tab.until("document.getElementById('really').textContent.includes('traffic 5')")
    tab.click("text=all clean")
    tab.until("document.querySelector('#play .word').textContent === 'Pause'")
    pause(tab)
    tab.click("#step")
    tab.until("document.getElementById('really').textContent.includes('all sensors')")


def test_the_keyboard_does_it_all(visit):
    tab = visit()
    before = batches(tab)
    tab.keyboard.press("ArrowRight")
    wait_for_batches(tab, before + 1)
    tab.keyboard.press("Space")
    tab.until("document.querySelector('#play .word').textContent === 'Pause'")
    tab.keyboard.press("Space")
    tab.until("document.querySelector('#play .word').textContent === 'Play'")
    reached = set()
    for _ in range(40):
        tab.keyboard.press("Tab")
        seen = tab.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            "return [e.id || e.name || e.ariaLabel || e.tagName, s.outlineStyle]; })()"
        )
        reached.add(seen[0])
        assert seen[0] == "BODY" or seen[1] != "none", f"no focus to be seen on {seen[0]}"
    assert {"play", "step", "reset", "speed", "theme", "order", "method", "csv", "png"} <= reached
    assert "Severity of audio" in reached


def test_a_lost_line_is_said_and_comes_back_with_the_history(visit, demo):
    tab = visit()
    tab.wait_for_selector("path[data-series=DASP]")
    known = batches(tab)
    tab.context.set_offline(True)
    for connection in list(demo._server.server_state.connections):
        connection.transport.abort()
    tab.until("document.body.dataset.line === 'lost'")
    assert "connection lost" in tab.inner_text("#line")
    tab.context.set_offline(False)
    tab.until("document.body.dataset.line === 'live'")
    assert batches(tab) == known
    assert tab.evaluate("document.querySelectorAll('path[data-series=DASP]').length") == 1
    tab.expected()  # the browser writes failed attempts to its console


def test_the_dark_phone_and_the_bright_one(visit, photograph):
    for scheme in ("dark", "light"):
        size = {"width": 360, "height": 780}
        tab = visit(viewport=size, color_scheme=scheme, has_touch=True, device_scale_factor=2)
        tab.wait_for_selector("#cards img")
        wide = tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360, "it can be scrolled sideways"
        ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", ground)[:3])) > 380
        assert light == (scheme == "light")
        photograph(tab, f"phone-{scheme}")
    tab.click("#theme")
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    photograph(visit(color_scheme="dark", viewport={"width": 1280, "height": 900}), "desktop-dark")


def test_reset_returns_to_the_source_state(visit, demo):
    tab = visit()
    tab.click("text=traffic in the sound")
    wait_for_batches(tab, batches(tab) + 3)
    pause(tab)
    assert len({percent(tab, lane) for lane in ("Source", "READ", "DASP")}) > 1
    tab.check("input[value=interleaved]")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("r")
    tab.until("Number(document.body.dataset.batches) === 0")
    assert "nothing has been learned" in tab.inner_text("#diagnosis")
    tab.click("#step")
    wait_for_batches(tab, 1)
    # Before anything is learned, all three say the same.
    assert len({percent(tab, lane) for lane in ("Source", "READ", "DASP")}) == 1
