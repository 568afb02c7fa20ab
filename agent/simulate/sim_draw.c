#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent/cli/simulate_report.h"

/* The picture: a panel for each measure, over the levels of reclaim, a line for each regime. */

#define WIDTH   960
#define HEIGHT  600
#define TOP     96
#define COLUMNS 3
#define PANEL_W 320
#define PANEL_H 230
#define LEFT    62
#define RIGHT   16
#define ABOVE   30
#define BELOW   34
#define HOUR_MS 3600000.0
#define MIN_MS  60000.0

static const char *const colours[SIM_REGIMES] = {"#c0504d", "#7f7f7f", "#3c9d5b", "#d9822b",
                                                 "#2a6fbb"};

static double terminations(const struct sim_result *result)
{
    return (double)result->terminations;
}

static double lost(const struct sim_result *result)
{
    return (double)result->lost_ms / HOUR_MS;
}

static double cost(const struct sim_result *result)
{
    return result->cost;
}

static double busy(const struct sim_result *result)
{
    return result->occupied_ms ? 100.0 * (double)result->busy_ms / (double)result->occupied_ms : 0;
}

static double wait_mean(const struct sim_result *result)
{
    return (double)result->wait_mean_ms / MIN_MS;
}

static double wait_p99(const struct sim_result *result)
{
    return (double)result->wait_p99_ms / MIN_MS;
}

static const struct {
    const char *title;
    double (*value)(const struct sim_result *);
} panels[] = {
    {"programs terminated", terminations},           {"work lost, device hours", lost},
    {"cost, device hours on demand", cost},          {"mean wait, minutes", wait_mean},
    {"99th percentile of waits, minutes", wait_p99}, {"occupied devices busy, %", busy},
};

static void text(FILE *file, double x, double y, int size, const char *anchor, const char *weight,
                 const char *words)
{
    fprintf(file,
            "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\" fill=\"#333\" "
            "font-weight=\"%s\">",
            x, y, size, anchor, weight);
    for (; *words; words++) {
        const char *escaped = *words == '&' ? "&amp;" : *words == '<' ? "&lt;" : NULL;
        if (escaped) {
            fputs(escaped, file);
        } else {
            /* Names may be in any encoding; SVG is UTF-8. */
            fputc((unsigned char)*words < 0x80 ? *words : '?', file);
        }
    }
    fputs("</text>\n", file);
}

/* Steps of 1, 2 or 5 times a power of ten, four or five of them to the top. */
static double step_of(double most)
{
    double step = pow(10, floor(log10(most > 0 ? most : 1)) - 1);

    while (most / step > 5) {
        static const double factors[] = {2, 2.5, 2};
        for (size_t i = 0; i < ARRAY_SIZE(factors) && most / step > 5; i++) {
            step *= factors[i];
        }
    }
    return step;
}

struct frame_of_panel {
    double x, y, width, height, most;
    size_t levels;
};

static double x_of(const struct frame_of_panel *frame, size_t level)
{
    return frame->x + frame->width * ((double)level + 0.5) / (double)frame->levels;
}

static double y_of(const struct frame_of_panel *frame, double value)
{
    return frame->y + frame->height * (1 - value / frame->most);
}

static void draw_axes(FILE *file, const struct sim_report *report,
                      const struct frame_of_panel *frame, double step)
{
    char words[32];

    for (int i = 0; i * step <= frame->most * 1.0001; i++) {
        double value = i * step;
        fprintf(file, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n",
                frame->x, frame->x + frame->width, y_of(frame, value), y_of(frame, value),
                value > 0 ? "#e3e3e3" : "#555");
        snprintf(words, sizeof(words), "%.6g", value);
        text(file, frame->x - 6, y_of(frame, value) + 4, 11, "end", "normal", words);
    }
    for (size_t i = 0; i < frame->levels; i++) {
        snprintf(words, sizeof(words), "%g", report->options->levels[i].reclaim / 1e6);
        text(file, x_of(frame, i), frame->y + frame->height + 16, 11, "middle", "normal", words);
    }
}

/* Where lines lie on each other, the one below is seen around the one above. */
static void draw_line(FILE *file, const struct sim_report *report,
                      const struct frame_of_panel *frame, size_t panel, size_t regime)
{
    double width = 2.2 + 0.9 * (double)(SIM_REGIMES - 1 - regime);

    fputs("<polyline points=\"", file);
    for (size_t i = 0; i < frame->levels; i++) {
        double value = panels[panel].value(&report->results[i * SIM_REGIMES + regime]);
        fprintf(file, "%s%.1f,%.1f", i ? " " : "", x_of(frame, i), y_of(frame, value));
    }
    fprintf(file,
            "\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-linejoin=\"round\"/>\n",
            colours[regime], width);
    for (size_t i = 0; i < frame->levels; i++) {
        double value = panels[panel].value(&report->results[i * SIM_REGIMES + regime]);
        fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"%s\"/>\n", x_of(frame, i),
                y_of(frame, value), width + 0.8, colours[regime]);
    }
}

static void draw_panel(FILE *file, const struct sim_report *report, size_t panel)
{
    struct frame_of_panel frame = {
        .x = (double)(panel % COLUMNS) * PANEL_W + LEFT,
        .y = (panel < COLUMNS ? 0 : PANEL_H) + TOP + ABOVE,
        .width = PANEL_W - LEFT - RIGHT,
        .height = PANEL_H - ABOVE - BELOW,
        .levels = report->options->level_count,
    };

    for (size_t i = 0; i < report->count; i++) {
        frame.most = fmax(frame.most, panels[panel].value(&report->results[i]));
    }
    double step = step_of(frame.most);
    frame.most = fmax(ceil(frame.most / step), 1) * step;
    text(file, frame.x, frame.y - 10, 13, "start", "bold", panels[panel].title);
    draw_axes(file, report, &frame, step);
    for (size_t i = 0; i < SIM_REGIMES; i++) {
        draw_line(file, report, &frame, panel, i);
    }
}

static void draw(FILE *file, const struct sim_report *report)
{
    char words[SIM_ERROR];

    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "height=\"%d\" font-family=\"DejaVu Sans, Helvetica, sans-serif\">\n"
            "<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT, WIDTH, HEIGHT);
    snprintf(words, sizeof(words),
             "Simulated: %u programs on %u devices in %u nodes that may be reclaimed",
             report->trace->task_count, report->trace->device_count, report->trace->node_count);
    text(file, LEFT, 28, 16, "start", "bold", words);
    const char *name = report->trace->name;
    size_t length = strlen(name);
    snprintf(words, sizeof(words), "%s%s", length > 110 ? "..." : "",
             length > 110 ? name + length - 110 : name);
    text(file, LEFT, 48, 12, "start", "normal", words);
    for (size_t i = 0; i < SIM_REGIMES; i++) {
        double x = LEFT + 160.0 * (double)i;
        fprintf(file, "<rect x=\"%.1f\" y=\"64\" width=\"14\" height=\"14\" fill=\"%s\"/>\n", x,
                colours[i]);
        text(file, x + 20, 76, 13, "start", "normal", sim_regime_name((enum sim_regime)i));
    }
    for (size_t i = 0; i < ARRAY_SIZE(panels); i++) {
        draw_panel(file, report, i);
    }
    text(file, WIDTH / 2.0, HEIGHT - 16, 13, "middle", "normal",
         "reclaims of each node in an hour");
    fputs("</svg>\n", file);
}

int sim_report_draw(const struct sim_report *report, const char *path)
{
    FILE *file = fopen(path, "we");

    if (!file) {
        return -errno;
    }
    draw(file, report);
    bool failed = ferror(file);
    failed = fclose(file) || failed;
    return failed ? -EIO : 0;
}
