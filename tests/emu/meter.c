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
 * launches draw above that. While launches of a process run, and until it has added what they drew,
 * it has a lock, for which the others leave the file's time alone: on a busy machine it may add
 * late what would else seem to be drawn within a moment.
 */

#define METER_MS     5
#define METER_BYTES  42 /* two numbers of 20 digits */
#define UJ_OF(w, ns) ((w) * (ns) / 1000)

/* Of all processes that have the file open; by that of writing the file (flock) it goes unnoticed.
 */
static int lock_time(const struct emu_device *device, short type, int wait)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(device->meter_fd, wait, &lock);
}

void emu_meter_busy(struct emu_device *device)
{
    if (device->meter_fd >= 0)
        (void)lock_time(device, F_RDLCK, F_OFD_SETLKW);
}

/* How long since @since_ns launches of this process ran there. cores_lock held. */
static uint64_t busy_ns(const struct emu_device *device, uint64_t since_ns, uint64_t now_ns)
{
    uint64_t end = device->gates != NULL ? now_ns : device->cores_over_ns;
    since_ns = since_ns > device->busy_since_ns ? since_ns : device->busy_since_ns;
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

static void add_since(struct emu_device *device, uint64_t since, uint64_t now)
{
    pthread_mutex_lock(&device->cores_lock);
    uint64_t busy = busy_ns(device, since, now);
    bool locked =
        device->gates != NULL || busy != 0 || lock_time(device, F_WRLCK, F_OFD_SETLK) == 0;
    if (locked)
        add_to_meter(device->meter_fd, &device->config, now, busy);
    if (locked && device->gates == NULL)
        (void)lock_time(device, F_UNLCK, F_OFD_SETLK);
    pthread_mutex_unlock(&device->cores_lock);
}

static void *run_meter(void *data)
{
    struct emu_device *device = data;
    for (uint64_t since = emu_now_ns();;) {
        uint64_t now = emu_now_ns();
        add_since(device, since, now);
        since = now;
        emu_sleep_ms(METER_MS);
    }
    return NULL;
}

void emu_meter_start(struct emu_device *device)
{
    pthread_t thread;
    device->meter_fd = device->config.meter[0]
                           ? open(device->config.meter, O_RDWR | O_CREAT | O_CLOEXEC, 0600)
                           : -1;
    if (device->meter_fd >= 0 && pthread_create(&thread, NULL, run_meter, device) == 0)
        (void)pthread_detach(thread);
}
