#include "tests/remote/seat.h"

#include <unistd.h>

#include "tests/support/calls.h"

struct emu_shared *emulated;

cl_device_id seat_device(struct served *served)
{
    cl_platform_id platform;
    cl_device_id device;
    served_start(served, NULL);
    served_use(served);
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    return device;
}

struct seat seat_take(cl_device_id device)
{
    cl_int errors[3];
    struct seat seat;
    seat.context = clCreateContext(NULL, 1, &device, NULL, NULL, &errors[0]);
    seat.queue = clCreateCommandQueue(seat.context, device, 0, &errors[1]);
    seat.buffer = clCreateBuffer(seat.context, CL_MEM_READ_WRITE, SEAT_SIZE, NULL, &errors[2]);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(errors[i], CL_SUCCESS);
    return seat;
}

void seat_write(struct seat seat, const char *bytes)
{
    OK(clEnqueueWriteBuffer(seat.queue, seat.buffer, CL_TRUE, 0, SEAT_SIZE, bytes, 0, NULL, NULL));
}

void seat_leave(struct seat seat)
{
    RELEASE(seat.buffer, seat.queue, seat.context);
}

void emulate(const char *keys)
{
    static char config[] = "/tmp/remote-emu-XXXXXX", shared[] = "/tmp/remote-control-XXXXXX";
    int file = mkstemp(config);
    cr_assert(file >= 0 && dprintf(file, "[emu]\nbase=1 %s\n", keys) > 0);
    close(file);
    file = mkstemp(shared);
    cr_assert(file >= 0);
    close(file);
    unlink(shared);
    cr_assert_eq(emu_shared_open(shared, &emulated), 0);
    setenv("EMU_CONFIG", config, 1);
    setenv("EMU_CONTROL", shared, 1);
    setenv("TEST_VENDORS", getenv("TEST_EMU"), 1);
}

cl_device_id emulated_device(struct served *served, const char *keys)
{
    emulate(keys);
    return seat_device(served);
}

void emulated_stop(struct served *served)
{
    served_stop(served);
    cr_assert(!served_wrote(served, " crashed: ") && !served_wrote(served, "was ended"));
    unlink(getenv("EMU_CONFIG"));
    unlink(getenv("EMU_CONTROL"));
}
