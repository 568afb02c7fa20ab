#include "state/present/reasons.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/array.h"

static bool reasons_same_subject(const struct reason *a, const struct reason *b)
{
    return a->kind == b->kind && a->param == b->param && a->flags == b->flags &&
           a->type == b->type && a->format.image_channel_order == b->format.image_channel_order &&
           a->format.image_channel_data_type == b->format.image_channel_data_type &&
           strcmp(a->name, b->name) == 0;
}

static struct reason *reasons_find(const struct reasons *reasons, const struct reason *what)
{
    for (size_t i = 0; i < reasons->count; i++)
        if (reasons_same_subject(&reasons->items[i], what))
            return &reasons->items[i];
    return NULL;
}

static struct reason *reasons_add(struct reasons *reasons)
{
    bool *by = NULL;

    if (array_make_room(&reasons->items, reasons->count, sizeof(reasons->items[0])))
        by = calloc(reasons->device_count + 1, sizeof(*by));
    if (!by)
        return NULL;
    reasons->items[reasons->count] = (struct reason){.by = by};
    return &reasons->items[reasons->count++];
}

struct reason *reasons_note(struct reasons *reasons, const struct reason *what)
{
    struct reason *noted;
    bool *by;

    if (!reasons)
        return NULL;
    noted = reasons_find(reasons, what);
    if (!noted)
        noted = reasons_add(reasons);
    if (!noted) {
        reasons->failed = true;
        return NULL;
    }
    by = noted->by;
    memset(by, 0, reasons->device_count * sizeof(*by));
    *noted = *what;
    noted->by = by;
    return noted;
}

struct reason *reasons_note_answer(struct reasons *reasons, cl_device_info param,
                                   enum reason_rule rule, const char *because)
{
    return reasons_note(
        reasons,
        &(struct reason){.kind = REASON_ANSWER, .rule = rule, .param = param, .because = because});
}

static struct reason reasons_named(enum reason_kind kind, const char *name)
{
    struct reason reason = {.kind = kind};

    snprintf(reason.name, sizeof(reason.name), "%s", name);
    return reason;
}

struct reason *reasons_note_name(struct reasons *reasons, enum reason_kind kind, const char *name,
                                 enum reason_rule rule, const char *because)
{
    struct reason reason = reasons_named(kind, name);

    reason.rule = rule;
    reason.because = because;
    return reasons_note(reasons, &reason);
}

const struct reason *reasons_find_answer(const struct reasons *reasons, cl_device_info param)
{
    return reasons_find(reasons, &(struct reason){.kind = REASON_ANSWER, .param = param});
}

const struct reason *reasons_find_name(const struct reasons *reasons, enum reason_kind kind,
                                       const char *name)
{
    struct reason reason = reasons_named(kind, name);

    return reasons_find(reasons, &reason);
}

void reasons_spread(struct reasons *reasons, const size_t *place, size_t count)
{
    for (size_t i = 0; i < reasons->count; i++) {
        bool *by = reasons->items[i].by;

        for (size_t j = count; j-- > 0;) {
            bool decided = by[j];

            by[j] = false;
            by[place[j]] = decided;
        }
    }
}

void reasons_finish(struct reasons *reasons)
{
    for (size_t i = 0; i < reasons->count; i++)
        free(reasons->items[i].by);
    free(reasons->items);
    *reasons = (struct reasons){0};
}
