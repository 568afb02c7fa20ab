#include "tests/emu/call.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "emu_entries.h"
#include "state/base/files/owned.h"
#include "tests/emu/object.h"

#define NS_PER_US      1000ull
#define NS_PER_MS      1000000ull
#define NS_PER_S       1000000000ull
#define BYTES_PER_MB   1000000ull
#define LINK_SLICE_NS  (2 * NS_PER_MS) /* how soon a transfer notices that its device vanished */
#define TRACE_LINE_MAX 256
#define THREAD_END_MS  5

static bool tells_end; /* set once, before the first call; likewise: */
static const char *trace_path;
static struct owned trace = OWNED_NONE; /* which file it is: its number may become another */
static _Atomic int trace_number = -1;

uint64_t emu_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The thread that ends the process, once the driver's handler of exit() has run; 0 before. */
static _Atomic pid_t ended_by;

static void process_ends(void)
{
    atomic_store(&ended_by, gettid());
}

/* A driver would crash, now and then; this one always does. What the exiting thread still calls is
 * the program's own. */
static void crash_if_ended(void)
{
    pid_t by = atomic_load(&ended_by);
    if (by != 0 && by != gettid())
        abort();
}

/* What a driver keeps for each thread goes when that ends, which takes a moment. */
static pthread_key_t of_thread;

static void thread_ends(void *unused)
{
    (void)unused;
    emu_sleep_ms(THREAD_END_MS);
    crash_if_ended();
}

void emu_sleep_until_ns(uint64_t when)
{
    struct timespec until = {(time_t)(when / NS_PER_S), (long)(when % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

void emu_sleep_ms(uint64_t ms)
{
    if (ms != 0)
        emu_sleep_until_ns(emu_now_ns() + ms * NS_PER_MS);
}

void emu_hang(void)
{
    for (;;)
        pause();
}

uint64_t emu_link_ns(const struct emu_device *device, uint64_t bytes)
{
    const struct emu_config *config = &device->config;
    double ns = config->link_mb_s == 0
                    ? 0
                    : (double)bytes * NS_PER_S / ((double)config->link_mb_s * BYTES_PER_MB);
    return config->setup_us * NS_PER_US + (uint64_t)ns;
}

uint64_t emu_engine_take(struct emu_device *device, enum emu_engine engine, uint64_t duration)
{
    uint64_t now = emu_now_ns();
    pthread_mutex_lock(&device->engines_lock);
    uint64_t *free_ns = &device->engine_free_ns[engine];
    uint64_t end = (*free_ns > now ? *free_ns : now) + duration;
    *free_ns = end;
    pthread_mutex_unlock(&device->engines_lock);
    return end;
}

cl_int emu_engine_wait(struct emu_device *device, uint64_t end)
{
    for (uint64_t now = emu_now_ns(); now < end; now = emu_now_ns()) {
        if (atomic_load(&device->shared->vanished) != 0)
            return CL_OUT_OF_RESOURCES;
        emu_sleep_until_ns(end - now > LINK_SLICE_NS ? now + LINK_SLICE_NS : end);
    }
    return CL_SUCCESS;
}

cl_int emu_link_wait(struct emu_device *device, enum emu_engine link, uint64_t bytes)
{
    uint64_t cost = emu_link_ns(device, bytes);
    return cost == 0 ? CL_SUCCESS : emu_engine_wait(device, emu_engine_take(device, link, cost));
}

/* Of the call under way; calls of drivers do not nest. */
static _Thread_local bool fails_at_end;
static _Thread_local uint64_t lasts_ns;

bool emu_call_fails_at_end(void)
{
    return fails_at_end;
}

void emu_call_lasts(uint64_t ns)
{
    lasts_ns = ns;
}

uint64_t emu_call_lasts_ns(void)
{
    return lasts_ns;
}

/* True for the one call that an arm was waiting for. */
static bool arm_fires(struct emu_shared_device *shared, int function)
{
    int64_t left = atomic_load(&shared->arm_left);
    int target = atomic_load(&shared->arm_target);
    if (left <= 0 || (target != EMU_EVERY_FUNCTION && target != function))
        return false;
    while (left > 0)
        if (atomic_compare_exchange_weak(&shared->arm_left, &left, left - 1))
            return left == 1;
    return false;
}

/* Drivers bring libraries in with a context, and a compiler's parts as it needs them: early in that
 * call. */
static void register_late(int function)
{
    if (tells_end && (function == EMU_FN_clCreateContext || function == EMU_FN_clBuildProgram))
        atexit(process_ends);
}

cl_int emu_call_begin(struct emu_call *call, int function, struct emu_device *device)
{
    crash_if_ended();
    if (tells_end)
        pthread_setspecific(of_thread, call);
    struct emu_shared_device *shared = device->shared;
    const struct emu_function_info *info = &emu_functions[function];
    call->device = device;
    call->function = function;
    call->number = atomic_fetch_add(&shared->calls, 1) + 1;
    call->losses = atomic_load(&shared->losses);
    atomic_fetch_add(&shared->function_calls[function], 1);
    fails_at_end = false;
    lasts_ns = 0;
    if (arm_fires(shared, function)) {
        int32_t error = atomic_load(&shared->arm_error);
        atomic_fetch_add(&shared->fired, 1);
        fails_at_end = error == EMU_ERROR_AT_END;
        if (error == EMU_ERROR_VANISH)
            emu_shared_vanish(emu_control_shared(), shared->name);
        else if (!fails_at_end)
            return error == EMU_ERROR_NATURAL ? info->natural_error : error;
    }
    const struct emu_config *config = &device->config;
    bool hangs = config->lost_hangs && function == EMU_FN_clFinish;
    if (atomic_load(&shared->vanished) != 0 && hangs)
        emu_hang();
    if (atomic_load(&shared->vanished) != 0 && !info->host)
        return config->lost_error != 0 ? config->lost_error : info->lost_error;
    if (info->since > device->config.version)
        return CL_INVALID_OPERATION;
    register_late(function);
    return CL_SUCCESS;
}

/* Of source, kernels' names and parameters, and of what it does not offer at all. */
static bool only_driver_knows(cl_int err)
{
    return err > CL_INVALID_VALUE ||
           (err <= CL_INVALID_BINARY && err >= CL_INVALID_KERNEL_DEFINITION) ||
           err == CL_INVALID_ARG_SIZE || err == CL_INVALID_OPERATION ||
           err == CL_INVALID_COMPILER_OPTIONS || err == CL_INVALID_LINKER_OPTIONS;
}

static int open_trace(struct owned *ret_trace)
{
    return owned_take(open(trace_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), ret_trace);
}

/* The program may have closed its number, or made it a file of its own: then it is opened anew. */
static struct owned find_trace(void)
{
    int number = atomic_load(&trace_number);
    struct owned found = {number, trace.device, trace.inode};
    if (owned_fd(&found) >= 0 || open_trace(&found) != 0)
        return found;
    if (!atomic_compare_exchange_strong(&trace_number, &number, found.fd)) {
        owned_close(&found);
        found = (struct owned){number, trace.device, trace.inode};
    }
    return found;
}

/* While the program has every number there is, lines are missing. */
static void trace_call(const struct emu_call *call, cl_int err)
{
    char line[TRACE_LINE_MAX];
    struct owned file = find_trace();
    int length = snprintf(line, sizeof(line), "%llu %s %s %d\n", (unsigned long long)call->number,
                          call->device->shared->name, emu_functions[call->function].name, err);
    /* One write to a file opened for appending: lines of several programs do not mix. */
    (void)!owned_append(&file, line, (size_t)length);
}

cl_int emu_call_end(const struct emu_call *call, cl_int err)
{
    crash_if_ended();
    const struct emu_shared_device *shared = call->device->shared;
    if (call->device->config.careless && !only_driver_knows(err))
        err = CL_INVALID_GL_OBJECT;
    if (call->function == EMU_FN_clFinish && err == CL_SUCCESS &&
        atomic_load(&shared->losses) != call->losses) {
        if (call->device->config.lost_hangs)
            emu_hang();
        err = emu_functions[call->function].lost_error;
    }
    if (trace_path != NULL)
        trace_call(call, err);
    return err;
}

/* "device=small;call=17;function=clCreateBuffer;error=-5" */
static int arm_from_rule(char *rule)
{
    const char *device = NULL, *function = NULL;
    uint64_t n = 0;
    int error = EMU_ERROR_NATURAL;
    char *save = NULL;
    for (char *item = strtok_r(rule, ";", &save); item != NULL; item = strtok_r(NULL, ";", &save)) {
        char *value = strchr(item, '=');
        if (value == NULL)
            return -EINVAL;
        *value++ = '\0';
        if (strcmp(item, "device") == 0)
            device = value;
        else if (strcmp(item, "function") == 0)
            function = value;
        else if (strcmp(item, "call") == 0)
            n = strtoull(value, NULL, 10);
        else if (strcmp(item, "error") == 0 && strcmp(value, "vanish") == 0)
            error = EMU_ERROR_VANISH;
        else if (strcmp(item, "error") == 0)
            error = atoi(value);
        else
            return -EINVAL;
    }
    if (device == NULL)
        return -EINVAL;
    return emu_shared_arm(emu_control_shared(), device, n, function, error);
}

/* Rules for several devices. */
static int arm_from_text(const char *text)
{
    char copy[EMU_TEXT_MAX];
    char *save = NULL;
    int error = 0;
    if (strlen(text) >= sizeof(copy))
        return -EINVAL;
    strcpy(copy, text);
    for (char *rule = strtok_r(copy, ",", &save); rule != NULL && error == 0;
         rule = strtok_r(NULL, ",", &save))
        error = arm_from_rule(rule);
    return error;
}

void emu_call_init(void)
{
    tells_end = getenv("EMU_EXIT") != NULL;
    const char *fail = getenv("EMU_FAIL");
    if (tells_end) {
        pthread_key_create(&of_thread, thread_ends);
        atexit(process_ends);
    }
    trace_path = getenv("EMU_TRACE");
    int error = trace_path != NULL ? open_trace(&trace) : 0;
    if (error != 0)
        fprintf(stderr, "libreseat-emu: EMU_TRACE=%s: %s\n", trace_path, strerror(-error));
    atomic_store(&trace_number, trace.fd);
    if (fail != NULL && arm_from_text(fail) != 0)
        fprintf(stderr,
                "libreseat-emu: EMU_FAIL=%s: expected "
                "device=NAME;call=N[;function=NAME][;error=CODE|vanish][,device=...]\n",
                fail);
}
