#include <stddef.h>
#include <string.h>

#include "interpose/aware/aware_priv.h"
#include "state/base/clock.h"
#include "state/base/threads/fork.h"
#include "state/base/threads/thread_own.h"

/* Programs register with policy/reseat.h, and leave. */

#define PATIENCE_MS_MAX 600000

static pthread_once_t hook_once = PTHREAD_ONCE_INIT;
static int hook_error; /* written once */

static void registration_hook(void)
{
    hook_error = fork_watch();
    move_set_partner(&aware_partner);
    aware_save_hook();
}

static bool registration_at_most(uint64_t least, uint64_t most)
{
    return most == 0 || least <= most;
}

static bool registration_limits_valid(const struct reseat_limits *minimum,
                                      const struct reseat_limits *preferred)
{
    return registration_at_most(minimum->memory, preferred->memory) &&
           registration_at_most(minimum->allocation, preferred->allocation) &&
           registration_at_most(minimum->local_memory, preferred->local_memory) &&
           registration_at_most(minimum->work_group_size, preferred->work_group_size) &&
           registration_at_most(minimum->compute_units, preferred->compute_units);
}

static bool registration_program_valid(const struct reseat_program *program)
{
    return program->save_ms <= PATIENCE_MS_MAX && program->checkpoint_ms <= PATIENCE_MS_MAX &&
           program->clean_up_ms <= PATIENCE_MS_MAX && program->configure_ms <= PATIENCE_MS_MAX &&
           program->resume_ms <= PATIENCE_MS_MAX &&
           registration_limits_valid(&program->minimum, &program->preferred);
}

int aware_register(const struct reseat_program *given)
{
    struct reseat_program program = {0};
    /* The struct of a later header has more members at its end, which this library does not know;
     * that of the first has fewer. */
    if (!given || given->size < offsetof(struct reseat_program, save_ms))
        return RESEAT_INVALID;
    memcpy(&program, given, given->size < sizeof(program) ? given->size : sizeof(program));
    if (!registration_program_valid(&program))
        return RESEAT_INVALID;
    pthread_once(&hook_once, registration_hook);
    if (hook_error != 0)
        return RESEAT_NO_MEMORY;
    pthread_mutex_lock(&aware.lock);
    int result = aware.registered            ? RESEAT_ALREADY
                 : aware_start_thread() != 0 ? RESEAT_NO_MEMORY
                                             : 0;
    if (result == 0) {
        aware.program = program;
        aware.registered = true;
        aware.edition++;
        for (uint32_t i = 0; aware.started && i < vdevs_count(); i++)
            aware_follow(i);
    }
    pthread_mutex_unlock(&aware.lock);
    return result;
}

/* Wait for a callback of @registration that still runs, as long as it may take. Lock held. */
static bool registration_await_end(uint64_t registration)
{
    const struct aware_now *now = &aware.now;
    while (now->stage != AWARE_IDLE && now->registration == registration) {
        if (clock_now_ns() >= now->deadline_ns)
            return false;
        aware_wait(now->deadline_ns);
    }
    return true;
}

int aware_unregister(void)
{
    pthread_mutex_lock(&aware.lock);
    if (!aware.registered) {
        pthread_mutex_unlock(&aware.lock);
        return RESEAT_UNREGISTERED;
    }
    uint64_t registration = aware.registration;
    aware_forget();
    pthread_cond_broadcast(&aware.changed);
    bool from_callback = aware.thread && the_thread.aware != 0 && the_thread.aware == aware.process;
    bool ended = from_callback || registration_await_end(registration);
    pthread_mutex_unlock(&aware.lock);
    return ended ? RESEAT_OK : RESEAT_BUSY;
}

int aware_change_wish(const struct reseat_limits *minimum, const struct reseat_limits *preferred)
{
    int result = RESEAT_UNREGISTERED;
    pthread_mutex_lock(&aware.lock);
    struct reseat_program *program = &aware.program;
    if (aware.registered) {
        const struct reseat_limits least = minimum ? *minimum : program->minimum;
        const struct reseat_limits best = preferred ? *preferred : program->preferred;
        result = registration_limits_valid(&least, &best) ? RESEAT_OK : RESEAT_INVALID;
        if (result == RESEAT_OK) {
            program->minimum = least;
            program->preferred = best;
            aware.edition++;
        }
    }
    pthread_mutex_unlock(&aware.lock);
    return result;
}
