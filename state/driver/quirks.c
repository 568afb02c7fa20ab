#include "state/driver/quirks.h"

#include <string.h>

#include "state/base/compiler.h"

#define MESA     "rusticl"
#define NVIDIA   "NVIDIA CUDA"
#define OCLGRIND "Oclgrind"
#define POCL     "Portable Computing Language"
#define NEEDS    "it needs hardware that tests do not have"

const struct quirk_row quirk_rows[] = {
    {QUIRK_RUNS_IN_CALLER, OCLGRIND, "21.10", "runs commands in the thread that waits",
     "waits stay inside the gate, one at a time, and queues are not flushed",
     "state/object/residence.c", "tests/programs/meson.build", NULL},
    {QUIRK_NO_LOCKS, OCLGRIND, "21.10",
     "counts who holds objects, and keeps what commands hold, without locks",
     "its calls are made one at a time", "state/driver/locked.c",
     "tests/state/driver/test_locked.c", NULL},
    {0, OCLGRIND, "21.10", "fills its dispatch table with symbols that the program's own replace",
     "they are bound to the driver's again", "state/driver/rebind.c",
     "tests/state/driver/test_driver.c", NULL},
    {0, OCLGRIND, "21.10", "reports errors with the caller's pointer in another argument",
     "a report that says not of whom is logged alone", "state/object/residence.c",
     "tests/chaos/meson.build", NULL},
    {QUIRK_FINISH_FORGETS, MESA, "22.3",
     "clFinish returns at once where another thread flushed before",
     "a marker is waited for in front of it", "state/object/residence.c", "tests/programs/events.c",
     NULL},
    {QUIRK_HOLDS_BACK, MESA, "22.3",
     "begins no command of a queue that was not flushed, where another queue's waits for it",
     "the queue is flushed by who gives what waits: most programs rely on that",
     "state/command/issue.c", "tests/programs/unflushed.c", NULL},
    {QUIRK_GROUP_SIZE_WRONG, MESA, "22.3",
     "CL_KERNEL_WORK_GROUP_SIZE is the preferred multiple, and larger groups run",
     "the device's largest group counts", "state/driver/driver.h", "tests/programs/meson.build",
     NULL},
    {QUIRK_BINARY_IS_IL, MESA, "22.3",
     "its binaries are SPIR-V, which it compiles when a kernel is made",
     "the library of binaries keeps what it built only for programs that ask for their binaries: "
     "that compiles every kernel",
     "state/program/program_library.c", "tests/state/program/test_library_drivers.c", NULL},
    {QUIRK_COMPILES_INSIDE, MESA, "22.3", "compiles in its process; others run a linker, as POCL",
     "a session of a device server may run no program then", "remote/server/session/sandbox.c",
     "tests/remote/server/test_sandbox.c", NULL},
    {QUIRK_LOCKS_EVENT, MESA, "22.3", "holds an event's lock while it calls back",
     "a device server does not ask the event there whether its command failed",
     "remote/server/session/pending.c", "tests/remote/meson.build", NULL},
    {0, MESA, "22.3", "makes no image from a buffer over host memory",
     "each device is tried: else such buffers are not made over their memory",
     "state/object/residence.c", "tests/programs/memory/memory_images.c", NULL},
    {0, MESA, "22.3", "knows of a map only once it was executed",
     "an unmap that it refuses is given again after the queue has ended",
     "state/object/residence.c", "tests/programs/longmap.c", NULL},
    {0, MESA, "22.3", "its handler of exit() joins threads that a forked child does not have",
     "the C library is told to keep their stacks", "agent/cli/verbs/run.c",
     "tests/programs/forker.c", NULL},
    {QUIRK_WAITS_END, NVIDIA, "580", "ends its waits with an error when the device fails",
     "they need no thread beside them that looks whether it is lost", "state/object/residence.c",
     NULL, NEEDS},
    {QUIRK_CALLS_COMPLETE, NVIDIA, "580",
     "callbacks say CL_COMPLETE of a command whose event says that it failed",
     "the event is asked in the callback, by device servers too", "state/command/event.c",
     "tests/state/command/test_events.c", NULL},
    {0, NVIDIA, "580", "profiling times of some commands, or the first of them, are 0",
     "then the next one that is known counts", "state/command/event.c",
     "tests/state/command/test_events.c", NULL},
    {0, NVIDIA, "580",
     "says at once that it mapped with CL_MAP_WRITE_INVALIDATE_REGION, whatever is queued before",
     "the map has ended when what was queued before has", "state/command/map.c", NULL, NEEDS},
    {0, NVIDIA, "580",
     "copies of several contexts to host memory are those of the oldest, which may let go of it",
     "the others are drained before it does", "state/command/queue.c", NULL, NEEDS},
    {0, NVIDIA, "580", "CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE is 0 whatever there is",
     "variables are found in the source as well", "state/program/variables.c",
     "tests/state/program/test_variables.c", NULL},
    {0, POCL, "3.1", "the same", "likewise", "state/program/variables.c",
     "tests/state/program/test_variables.c", NULL},
    {QUIRK_BINARY_COMPILES, POCL, "3.1",
     "asked for a program's binary, compiles each kernel for work-groups of any size first",
     "the library of binaries keeps what it built only for programs that ask for their binaries, "
     "as "
     "it has a cache of its own",
     "state/program/program_library.c", "tests/state/program/test_library_drivers.c", NULL},
    {0, POCL, "3.1", "computes wrong values with private long16 where stacks begin otherwise",
     "the library's thread-local storage moves every stack by what keeps them aligned",
     "state/base/threads/thread_own.c", "tests/interpose/entry/test_tls.py", NULL},
    {0, POCL, "3.1", "its basic device deadlocks when two threads enqueue in one queue",
     "markers are set with the gate closed", "state/budget/bring.c", NULL,
     "the deadlock is a race that no test can bring about each time"},
    {QUIRK_RUNS_AT_ONCE, POCL, "3.1", "its basic device runs commands in the call that gives them",
     "who gives one counts as who waits for the device, so that it is seen to be busy",
     "state/command/command.c", "tests/state/budget/test_budget.c", NULL},
    {QUIRK_OFFSETS_MIXED, POCL, "3.1",
     "aborts where a kernel runs side by side with itself, with other global offsets or sizes",
     "launches are given in pieces only while the program has one queue, that is in order",
     "state/command/defer.c", "tests/programs/stress/stress.c", NULL},
    {0, POCL, "3.1",
     "its basic device deadlocks in clSetUserEventStatus when a marker waits for that event",
     "each device is tried, beside its session: one that hangs has no part in transfers between "
     "devices",
     "remote/server/session/gates.c", "tests/remote/test_remote_between.c", NULL},
    {0, POCL, "3.1", "never ends what is given to wait for an event that has failed already",
     "a server itself fails what waits for a command that it could not give",
     "remote/server/session/commands.c", "tests/remote/test_remote_images.c", NULL},
    {0, POCL, "3.1", "calls no destructor of an image over a buffer", "the buffer's own says it",
     "state/memory/memory_class.c", "tests/programs/memory/memory_images.c", NULL},
};
const size_t quirk_row_count = ARRAY_SIZE(quirk_rows);

unsigned quirks_of(const char *platform)
{
    unsigned quirks = 0;
    for (size_t i = 0; i < quirk_row_count; i++)
        if (strcmp(quirk_rows[i].platform, platform) == 0)
            quirks |= quirk_rows[i].quirk;
    return quirks;
}
