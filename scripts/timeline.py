"""A picture of a program that changed devices: frames per second over time, as SVG."""

WIDTH, HEIGHT = 960, 430
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 92, 56
COLOURS = ("#2a6fbb", "#d9822b", "#3d9970", "#8e5ea2", "#c0504d", "#5b7083")
WINDOW_SECONDS = 1.0  # a speed is an average over this much time
STEP_SECONDS = 0.2
STEPS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def _frames_at(points, when):
    last = points[0]
    for point in points:
        if point[0] >= when:
            span = point[0] - last[0]
            return last[1] + ((when - last[0]) / span if span else 1) * (point[1] - last[1])
        last = point
    return last[1]


def _speeds(points, moves):
    """[(time, speed, device)], averaged without looking across the middle of a move."""
    end, result, when = points[-1][0], [], points[0][0]
    changes = [(begin + stop) / 2 for begin, stop, *_ in moves]
    devices = [moves[0][2]] + [move[3] for move in moves]
    while when <= end:
        stay = sum(1 for change in changes if change <= when)
        low = max(when - WINDOW_SECONDS / 2, changes[stay - 1] if stay else 0)
        high = min(when + WINDOW_SECONDS / 2, changes[stay] if stay < len(changes) else end)
        if high - low > STEP_SECONDS / 2:
            speed = (_frames_at(points, high) - _frames_at(points, low)) / (high - low)
            result.append((when, speed, devices[stay]))
        when += STEP_SECONDS
    return result


def _ticks(most, wanted):
    step = next((s for s in STEPS if most / s <= wanted), STEPS[-1])
    return [i * step for i in range(int(most / step) + 1)]


def _text(x, y, text, size=12, anchor="middle", colour="#333", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}" font-weight="{weight}">{text}</text>')


def write_timeline(path, points, moves):
    """
    Write the picture to @path.

    points: [(seconds, frames done)]; moves: [(begin, end, from, to, downtime in ms)].
    """
    speeds = _speeds(points, moves)
    last = points[-1][0]
    most = max(speed for _, speed, _ in speeds) * 1.1 or 1
    names = list(dict.fromkeys([moves[0][2]] + [move[3] for move in moves]))
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}

    def x_of(seconds):
        return LEFT + seconds / last * (WIDTH - LEFT - RIGHT)

    def y_of(speed):
        return HEIGHT - BOTTOM - speed / most * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
           f'width="{WIDTH}" height="{HEIGHT}" font-family="DejaVu Sans, Helvetica, sans-serif">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           _text(LEFT, 26, "x264 --opencl, moved between devices while it encodes", 16, "start",
                 "#111", "bold")]
    for speed in _ticks(most, 6):
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_of(speed):.1f}" '
                   f'y2="{y_of(speed):.1f}" stroke="#e3e3e3"/>')
        out.append(_text(LEFT - 8, y_of(speed) + 4, f"{speed:g}", anchor="end"))
    for seconds in _ticks(last, 12):
        out.append(_text(x_of(seconds), HEIGHT - BOTTOM + 18, f"{seconds:g}"))
    out.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "seconds", 13))
    out.append(f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" '
               'font-size="13" text-anchor="middle" fill="#333">frames per second</text>')

    # Each stay is a coloured strip with the device's name, over its part of the curve.
    edges = [0.0] + [(begin + end) / 2 for begin, end, *_ in moves] + [last]
    stays = [moves[0][2]] + [move[3] for move in moves]
    for begin, end, name in zip(edges, edges[1:], stays):
        out.append(f'<rect x="{x_of(begin):.1f}" y="{TOP - 22}" width="{x_of(end) - x_of(begin):.1f}" '
                   f'height="18" fill="{colour[name]}"/>')
        out.append(_text(x_of((begin + end) / 2), TOP - 9, name, 12, colour="white", weight="bold"))
    for begin, end, _, _, downtime in moves:
        out.append(f'<rect x="{x_of(begin):.1f}" y="{TOP}" width="{max(x_of(end) - x_of(begin), 1):.1f}" '
                   f'height="{HEIGHT - TOP - BOTTOM}" fill="#999" fill-opacity="0.25"/>')
        out.append(_text(x_of((begin + end) / 2), TOP - 30, f"stopped {downtime:.1f} ms", 11))
    for name in names:
        run = []
        for when, speed, device in speeds + [(last, 0, None)]:
            if device == name:
                run.append(f"{x_of(when):.1f},{y_of(speed):.1f}")
            elif run:
                out.append(f'<polyline points="{" ".join(run)}" fill="none" '
                           f'stroke="{colour[name]}" stroke-width="2.2" stroke-linejoin="round"/>')
                run = []
    out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" '
               f'y2="{HEIGHT - BOTTOM}" stroke="#555"/>')
    out.append("</svg>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")
