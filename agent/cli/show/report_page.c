#include "agent/cli/show/report_page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"
#include "state/base/bytes/text.h"

/* The picture, in its own units. */
#define WIDTH  1000
#define HEIGHT 240
#define BINS   200
/* Fewer bins where they would have fewer kernels or pieces each, down to so many. */
#define BIN_LEAST  4
#define BINS_LEAST 20
#define TICKS      8 /* of time, at most */
/* So long before and after a move counts as its surroundings, at most. */
#define AROUND_US 1000000.0
/* No clock comes to that: decades. */
#define TIME_MAX_US 1e15
#define PPM         1000000u

struct interval {
    double begin_us, end_us;
    uint64_t bytes;
    double share; /**< How much of a launch it is. */
    char name[128];
};

struct list {
    struct interval *items; /* owned */
    size_t count;
};

struct page {
    struct list kernels, moves, closed;
    double begin_us, end_us; /* of all */
    char program[128], ended_by[32];
    uint64_t lost;
};

/* ---- the trace ---- */

/* It may have been written by anybody. */
static void take_text(char *ret, size_t size, const json_t *object, const char *name)
{
    const char *text = member_text(object, name);
    text_make_safe(ret, size, text, strlen(text));
}

static bool is_time(double us)
{
    return us >= 0 && us <= TIME_MAX_US;
}

static bool is_piece(const json_t *event)
{
    return strcmp(member_text(event, "cat"), "piece") == 0;
}

static bool add(struct list *list, const json_t *event)
{
    if (!array_make_room(&list->items, list->count, sizeof(list->items[0])))
        return false;
    struct interval *item = &list->items[list->count++];
    const json_t *args = json_object_get(event, "args");
    uint64_t ppm = member_number(args, "share_ppm");
    double begin = json_number_value(json_object_get(event, "ts"));
    *item = (struct interval){
        .begin_us = begin,
        .end_us = begin + json_number_value(json_object_get(event, "dur")),
        .bytes = member_number(args, "bytes"),
        .share = is_piece(event) && ppm < PPM ? (double)ppm / PPM : 1,
    };
    take_text(item->name, sizeof(item->name), event, "name");
    return true;
}

/* Of spans that are called as a phase is, only the whole is a move. */
static bool is_move(const json_t *event)
{
    return strcmp(member_text(event, "cat"), "move") == 0 &&
           strncmp(member_text(event, "name"), "move", 4) == 0;
}

static bool take(struct page *page, const json_t *event)
{
    const char *category = member_text(event, "cat");
    bool runs = strcmp(category, "kernel") == 0 || is_piece(event);
    struct list *list = runs                            ? &page->kernels
                        : strcmp(category, "gate") == 0 ? &page->closed
                        : is_move(event)                ? &page->moves
                                                        : NULL;
    if (strcmp(member_text(event, "ph"), "M") == 0) {
        if (strcmp(member_text(event, "name"), "process_name") == 0)
            take_text(page->program, sizeof(page->program), json_object_get(event, "args"), "name");
        return true;
    }
    double begin = json_number_value(json_object_get(event, "ts"));
    double end = begin + json_number_value(json_object_get(event, "dur"));
    if (!is_time(begin) || !is_time(end) || end < begin)
        return true;
    page->begin_us = page->end_us == 0 || begin < page->begin_us ? begin : page->begin_us;
    page->end_us = end > page->end_us ? end : page->end_us;
    return !list || add(list, event);
}

static int by_begin(const void *a, const void *b)
{
    const struct interval *one = a, *other = b;
    return one->begin_us < other->begin_us ? -1 : one->begin_us > other->begin_us;
}

/* 0, -EINVAL or -ENOMEM. */
static int read_trace(const char *path, struct page *page)
{
    json_t *object = json_load_file(path, 0, NULL);
    const json_t *events = json_object_get(object, "traceEvents"), *event;
    const json_t *other = json_object_get(object, "otherData");
    int error = json_is_array(events) && json_object_get(other, "ended_by") ? 0 : -EINVAL;
    size_t i;

    json_array_foreach(events, i, event)
    {
        if (error == 0 && !take(page, event))
            error = -ENOMEM;
    }
    page->lost = member_number(other, "lost");
    take_text(page->ended_by, sizeof(page->ended_by), other, "ended_by");
    json_decref(object);
    if (page->moves.count)
        qsort(page->moves.items, page->moves.count, sizeof(*page->moves.items), by_begin);
    return error;
}

/* ---- figures ---- */

/* Launches, of those in pieces as much as ended. */
static double ended_between(const struct page *page, double begin_us, double end_us)
{
    double count = 0;
    for (size_t i = 0; i < page->kernels.count; i++) {
        const struct interval *kernel = &page->kernels.items[i];
        if (kernel->end_us > begin_us && kernel->end_us <= end_us)
            count += kernel->share;
    }
    return count;
}

static double kernel_count(const struct page *page)
{
    return ended_between(page, page->begin_us - 1, page->end_us);
}

/* A second; 0 of no time. */
static double rate(const struct page *page, double begin_us, double end_us)
{
    begin_us = begin_us < page->begin_us ? page->begin_us : begin_us;
    end_us = end_us > page->end_us ? page->end_us : end_us;
    return end_us > begin_us ? ended_between(page, begin_us, end_us) * 1e6 / (end_us - begin_us)
                             : 0;
}

/* Figures that are as exact as they are worth: launches that take seconds are less than one. */
static const char *rate_text(double rate, char *ret_text, size_t size)
{
    (void)!snprintf(ret_text, size, rate >= 10 ? "%.0f" : "%.2g", rate);
    return ret_text;
}

static double closed_us(const struct page *page, const struct interval *move)
{
    double sum = 0;
    for (size_t i = 0; i < page->closed.count; i++)
        if (page->closed.items[i].begin_us >= move->begin_us &&
            page->closed.items[i].end_us <= move->end_us)
            sum += page->closed.items[i].end_us - page->closed.items[i].begin_us;
    return sum;
}

/* ---- the page ---- */

static void put_text(FILE *to, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", to);
            break;
        case '>':
            fputs("&gt;", to);
            break;
        case '&':
            fputs("&amp;", to);
            break;
        case '"':
            fputs("&quot;", to);
            break;
        default:
            fputc(*text, to);
        }
}

static double x_of(const struct page *page, double us)
{
    double span = page->end_us - page->begin_us;
    return span > 0 ? (us - page->begin_us) / span * WIDTH : 0;
}

static void put_bands(FILE *to, const struct page *page, const struct list *list, const char *class)
{
    for (size_t i = 0; i < list->count; i++) {
        double begin = x_of(page, list->items[i].begin_us), end = x_of(page, list->items[i].end_us);
        fprintf(to, "<rect class=\"%s\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"%d\"><title>",
                class, begin, end - begin > 1.5 ? end - begin : 1.5, HEIGHT);
        put_text(to, list->items[i].name);
        fputs("</title></rect>\n", to);
    }
}

/** Where a program that was suspended had no device: from its move into host memory to the end of
 *  the next one. */
static void put_away(FILE *to, const struct page *page)
{
    for (size_t i = 0; i < page->moves.count; i++) {
        const struct interval *move = &page->moves.items[i];
        double end_us = i + 1 < page->moves.count ? move[1].begin_us : page->end_us;
        if (strcmp(move->name, "move to host memory: done") == 0)
            fprintf(to,
                    "<rect class=\"away\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"%d\">"
                    "<title>suspended</title></rect>\n",
                    x_of(page, move->end_us), x_of(page, end_us) - x_of(page, move->end_us),
                    HEIGHT);
    }
}

/** 1, 2 or 5 of a power of ten: as long as few enough of them fit. */
static double tick_s(double span_s)
{
    static const double steps[] = {1, 2, 5};
    double tick = 1e-6;

    for (double power = tick; span_s / tick > TICKS; power *= 10)
        for (size_t i = 0; i < ARRAY_SIZE(steps) && span_s / tick > TICKS; i++)
            tick = power * steps[i];
    return tick;
}

static void put_axes(FILE *to, const struct page *page, double most_rate)
{
    double span_s = (page->end_us - page->begin_us) / 1e6, tick = tick_s(span_s);
    char text[32];

    fprintf(to,
            "<path class=\"axis\" d=\"M0 0V%d H%d\"/>\n"
            "<text x=\"-8\" y=\"10\" text-anchor=\"end\">%s/s</text>\n"
            "<text x=\"-8\" y=\"%d\" text-anchor=\"end\">0</text>\n",
            HEIGHT, WIDTH, rate_text(most_rate, text, sizeof(text)), HEIGHT);
    for (int i = 0; span_s > 0 && i * tick <= span_s; i++) {
        double x = i * tick / span_s * WIDTH;
        fprintf(to,
                "<path class=\"axis\" d=\"M%.2f %dv6\"/>"
                "<text x=\"%.2f\" y=\"%d\" text-anchor=\"middle\">%.6g%s</text>\n",
                x, HEIGHT, x, HEIGHT + 22, i * tick, i == 0 ? " s" : "");
    }
}

/** Which row of the table it is. */
static void put_numbers(FILE *to, const struct page *page)
{
    for (size_t i = 0; i < page->moves.count; i++)
        fprintf(
            to, "<text x=\"%.2f\" y=\"-6\" text-anchor=\"middle\">%zu</text>\n",
            (x_of(page, page->moves.items[i].begin_us) + x_of(page, page->moves.items[i].end_us)) /
                2,
            i + 1);
}

static void put_picture(FILE *to, const struct page *page)
{
    double bins[BINS] = {0}, most = 0;
    size_t count = page->kernels.count / BIN_LEAST;
    count = count < BINS_LEAST ? BINS_LEAST : count > BINS ? BINS : count;
    double bin_us = (page->end_us - page->begin_us) / (double)count;

    for (size_t i = 0; bin_us > 0 && i < page->kernels.count; i++) {
        size_t bin = (size_t)((page->kernels.items[i].end_us - page->begin_us) / bin_us);
        bin = bin < count ? bin : count - 1;
        bins[bin] += page->kernels.items[i].share;
        most = bins[bin] > most ? bins[bin] : most;
    }
    fprintf(to,
            "<svg viewBox=\"-70 -25 %d %d\" role=\"img\" "
            "aria-label=\"kernels that ended each second\">\n",
            WIDTH + 90, HEIGHT + 60);
    put_away(to, page);
    put_bands(to, page, &page->moves, "move");
    put_bands(to, page, &page->closed, "closed");
    put_numbers(to, page);
    fprintf(to, "<polyline class=\"rate\" points=\"0,%d ", HEIGHT);
    for (size_t i = 0; i < count; i++)
        fprintf(to, "%.2f,%.2f ", ((double)i + 0.5) * WIDTH / (double)count,
                HEIGHT - (most > 0 ? bins[i] / most * HEIGHT : 0));
    fprintf(to, "%d,%d\"/>\n", WIDTH, HEIGHT);
    put_axes(to, page, bin_us > 0 ? most * 1e6 / bin_us : 0);
    fputs("</svg>\n", to);
}

static void put_row(FILE *to, const struct page *page, size_t index)
{
    const struct interval *move = &page->moves.items[index];
    const double edges[] = {move->begin_us - AROUND_US, move->begin_us, move->end_us,
                            move->end_us + AROUND_US};
    char total[32], stopped[32], bytes[32], text[32];

    output_seconds((uint64_t)((move->end_us - move->begin_us) * 1000), total, sizeof(total));
    output_seconds((uint64_t)(closed_us(page, move) * 1000), stopped, sizeof(stopped));
    bytes_text(move->bytes, bytes, sizeof(bytes));
    fprintf(to, "<tr><td>%zu</td><td>%.3f s</td><td class=\"what\">", index + 1,
            (move->begin_us - page->begin_us) / 1e6);
    put_text(to, move->name);
    fprintf(to, "</td><td>%s</td><td>%s</td><td>%s</td>", total, stopped, bytes);
    for (int i = 0; i < 3; i++)
        fprintf(to, "<td>%s</td>",
                rate_text(rate(page, edges[i], edges[i + 1]), text, sizeof(text)));
    fputs("</tr>\n", to);
}

static void put_page(FILE *to, const struct page *page)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", to);
    put_text(to, page->program);
    fputs(" under reseat</title>\n<style>\n"
          "body{font:15px/1.4 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;"
          "color:#222;background:#fff}\n"
          "svg{width:100%;height:auto;font-size:14px}\n"
          ".rate{fill:#1f5fa8;fill-opacity:.15;stroke:#1f5fa8;stroke-width:1.5}\n"
          ".axis{fill:none;stroke:#888}\n.move{fill:#f3d9a4}\n.closed{fill:#c43c2b}\n"
          ".away{fill:#e4e4e4}\n"
          "table{border-collapse:collapse;width:100%}\n"
          "td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd}\n"
          ".what{text-align:left}\n</style></head>\n<body><h1>",
          to);
    put_text(to, page->program);
    fprintf(to,
            "</h1>\n<p>%.0f kernels in %.3g s, %zu move%s. The line is how many kernels ended each "
            "second; moves are shaded and numbered, dark where the program was kept out of its "
            "devices, and grey is "
            "where it was suspended.</p>\n",
            kernel_count(page), (page->end_us - page->begin_us) / 1e6, page->moves.count,
            page->moves.count == 1 ? "" : "s");
    put_picture(to, page);
    fputs("<table><thead><tr><th></th><th>at</th><th "
          "class=\"what\">move</th><th>took</th><th>stopped</th>"
          "<th>copied</th><th>kernels/s before</th><th>during</th><th>after</th></tr></thead>"
          "<tbody>\n",
          to);
    for (size_t i = 0; i < page->moves.count; i++)
        put_row(to, page, i);
    fputs("</tbody></table>\n<p>Before and after: of the second that is nearest.", to);
    if (page->lost)
        fprintf(to, " %llu spans came faster than they could be kept, and are missing.",
                (unsigned long long)page->lost);
    if (strcmp(page->ended_by, "program") == 0)
        fputs(" The program ended.", to);
    fputs("</p>\n</body></html>\n", to);
}

static int write_page(const char *path, const struct page *page)
{
    FILE *to = fopen(path, "we");
    if (!to)
        return -errno;
    put_page(to, page);
    bool failed = ferror(to);
    int error = fclose(to) ? -errno : 0;
    return failed && !error ? -EIO : error;
}

int report_page(const struct output *output, const char *trace, const char *path)
{
    struct page page = {.end_us = 0};
    int status = STATUS_DONE, error = read_trace(trace, &page);

    if (error) {
        status = output_fail(output, ERR_FAILED, "%s %s", trace,
                             error == -EINVAL ? "is no file that reseat trace wrote"
                                              : "is too large for the memory there is");
    } else {
        error = write_page(path, &page);
        if (error)
            status =
                output_fail(output, ERR_FAILED, "%s cannot be written: %s", path, strerror(-error));
    }
    if (!status && output->json) {
        json_t *object = output_object(output, STATUS_DONE);
        json_object_set_new(object, "file", output_text(path));
        json_object_set_new(object, "moves", json_integer((json_int_t)page.moves.count));
        json_object_set_new(object, "kernels",
                            json_integer((json_int_t)(kernel_count(&page) + 0.5)));
        status = output_print(object, STATUS_DONE);
    } else if (!status) {
        printf("%s: %zu moves, %.0f kernels\n", path, page.moves.count, kernel_count(&page));
        status = output_done();
    }
    free(page.kernels.items);
    free(page.moves.items);
    free(page.closed.items);
    return status;
}
