#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "tests/emu/call.h"
#include "tests/emu/object.h"

/*
 * An energy meter: a file with microjoules since it was made, and the time of its last change. All
 * processes that have the device open add to it: one of them what it draws idle, each what its own
 * launches draw above that.
 */

#define METER_MS     5
#define METER_BYTES  42 /* two numbers of 20 digits */
#define UJ_OF(w, ns) ((w) * (ns) / 1000)

/* How long since @since_ns launches of this process ran there. */
static uint64_t busy_ns(struct emu_device *device, uint64_t since_ns, uint64_t now_ns)
{
    pthread_mutex_lock(&device->cores_lock);
    bool runs = device->gates != NULL;
    uint64_t end = runs ? now_ns : device->cores_over_ns;
    since_ns = since_ns > device->busy_since_ns ? since_ns : device->busy_since_ns;
    pthread_mutex_unlock(&device->cores_lock);
    end = end < now_ns ? end : now_ns;
    return end > since_ns ? end - since_ns : 0;
}

static void add_to_meter(int fd, const struct emu_config *config, uint64_t now_ns, uint64_t busy)
{
    char text[METER_BYTES + 1] = "";
    uint64_t total = 0, last = now_ns;
    if (flock(fd, LOCK_EX) != 0)
        return;
    if (pread(fd, text, METER_BYTES, 0) == METER_BYTES)
        (void)sscanf(text, "%" SCNu64 " %" SCNu64, &total, &last);
    uint64_t idle = now_ns > last ? now_ns - last : 0;
    /* Nobody had the device open meanwhile: it drew what it draws idle. */
    total += UJ_OF(config->idle_w, idle) + UJ_OF(config->busy_w - config->idle_w, busy);
    snprintf(text, sizeof(text), "%020" PRIu64 " %020" PRIu64 "\n", total, now_ns);
    (void)!pwrite(fd, text, METER_BYTES, 0);
    (void)flock(fd, LOCK_UN);
}

static void *run_meter(void *data)
{
    struct emu_device *device = data;
    uint64_t since = emu_now_ns();
    int fd = open(device->config.meter, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (fd >= 0) {
        uint64_t now = emu_now_ns();
        add_to_meter(fd, &device->config, now, busy_ns(device, since, now));
        since = now;
        emu_sleep_ms(METER_MS);
    }
    return NULL;
}

void emu_meter_start(struct emu_device *device)
{
    pthread_t thread;
    if (device->config.meter[0] != '\0' && pthread_create(&thread, NULL, run_meter, device) == 0)
        (void)pthread_detach(thread);
}
