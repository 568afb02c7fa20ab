#include "policy/policy_priv.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *policy_action_name(enum policy_action action)
{
    static const char *const names[] = {"nothing", "grant",  "move",   "spill",  "wait",
                                        "suspend", "resume", "refuse", "prewarm"};

    return action <= POLICY_DO_PREWARM ? names[action] : "nothing";
}

struct size_text size_text(uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    struct size_text ret;
    unsigned unit = 0;

    while (unit < 6 && bytes >> (10 * (unit + 1)))
        unit++;
    if (bytes % (UINT64_C(1) << 10 * unit))
        snprintf(ret.text, sizeof(ret.text), "%.1f %s",
                 (double)bytes / (double)(UINT64_C(1) << 10 * unit), units[unit]);
    else
        snprintf(ret.text, sizeof(ret.text), "%" PRIu64 " %s", bytes >> 10 * unit, units[unit]);
    return ret;
}

void step_set(struct policy_step *ret_step, enum policy_action action, uint32_t program,
              uint32_t device, uint64_t bytes)
{
    ret_step->action = action;
    ret_step->program = program;
    ret_step->device = device;
    ret_step->bytes = bytes;
    ret_step->payback_s = 0;
    ret_step->reason[0] = '\0';
}

void step_say(struct policy_step *step, const char *format, ...)
{
    size_t used = strlen(step->reason);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(step->reason + used, sizeof(step->reason) - used, format, arguments);
    va_end(arguments);
}

void step_say_lack(const struct view *view, uint32_t program, struct policy_step *step)
{
    const struct policy_program *p = program_at(view, program);
    const struct policy_device *d;

    if (p->device == POLICY_NONE) {
        step_say(step, "%s needs %s", p->name, size_text(program_full(p)).text);
        return;
    }
    d = device_at(view, p->device);
    step_say(step, "%s has %s free of %s, %s needs %s more", d->name,
             size_text(device_free(d)).text, size_text(d->memory).text, p->name,
             size_text(p->need > p->granted ? p->need - p->granted : 0).text);
}
