"""What a visitor sees of `dasp demo`, in the order in which it happens: one page for all tests."""

import re


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


def test_it_begins_at_the_source_then_the_flag_follows_the_damage(visit, photograph):
    tab = visit()
    assert tab.title() == "dasp: a sensor goes bad"
    assert tab.is_visible("text=what you see, what to try")
    assert "nothing has been learnt" in tab.inner_text("#diagnosis")
    assert tab.is_checked("input[value=interleaved]")
    tab.select_option("#speed", "8")
    tab.click("#play")
    tab.until("document.getElementById('diagnosis').textContent.includes('video looks')")
    tab.until("document.getElementById('really').textContent.includes('audio')")
    tab.until("document.getElementById('diagnosis').textContent.includes('audio looks')")
    wait_for_batches(tab, 11)
    pause(tab)
    rows = tab.evaluate(
        "[...document.querySelectorAll('rect.band')].map(r => [r.dataset.row, r.dataset.said])"
    )
    for modality in ("audio", "video"):
        assert [modality, "true"] in rows
        assert [modality, "false"] in rows
    assert percent(tab, "DASP") > percent(tab, "Source")
    heights = (  # of a line on the screen, on average: a low number is high up
        "(name => { const line = document.querySelector(`path[data-series=${name}]`);"
        "const at = k => line.getPointAtLength(line.getTotalLength() * k / 100).y;"
        "return [...Array(101).keys()].reduce((sum, k) => sum + at(k), 0) / 101; })"
    )
    assert tab.evaluate(f"{heights}('DASP')") < tab.evaluate(f"{heights}('Source')")
    assert tab.evaluate("document.querySelector('path[data-series=DASP]').getTotalLength()") > 50
    photograph(tab, "desktop-light")


def test_the_sound_of_a_sample_can_be_heard(visit):
    tab = visit()
    with tab.expect_response(re.compile(r"/sound/.*\.wav")) as answer:
        tab.click("#cards .sound >> nth=0")
    assert answer.value.ok
    assert answer.value.body()[:4] == b"RIFF"
    assert tab.locator("#cards .sample:visible").count() == 4
    sizes = tab.evaluate("[...document.querySelectorAll('#cards img')].map(i => i.naturalWidth)")
    assert sizes == [64] * 8


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
    tab.until("document.getElementById('really').textContent.includes('both sensors')")


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
    for _ in range(30):
        tab.keyboard.press("Tab")
        seen = tab.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            "return [e.id || e.name || e.ariaLabel || e.tagName, s.outlineStyle]; })()"
        )
        reached.add(seen[0])
        assert seen[0] == "BODY" or seen[1] != "none", f"no focus to be seen on {seen[0]}"
    assert {"play", "step", "reset", "speed", "theme", "order"} <= reached
    assert "Severity of audio" in reached


def test_a_lost_line_is_said_and_comes_back_with_the_history(visit, demo):
    tab = visit()
    wait_for_batches(tab, 11)
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
    assert len({percent(tab, lane) for lane in ("Source", "READ", "DASP")}) > 1
    tab.check("input[value=interleaved]")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("r")
    tab.until("Number(document.body.dataset.batches) === 0")
    assert "nothing has been learnt" in tab.inner_text("#diagnosis")
    tab.click("#step")
    wait_for_batches(tab, 1)
    # Before anything is learnt, all three say the same.
    assert len({percent(tab, lane) for lane in ("Source", "READ", "DASP")}) == 1
