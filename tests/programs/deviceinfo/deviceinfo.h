/** What the parts of deviceinfo share: typed questions that check their answer's size. */
#ifndef TESTS_PROGRAMS_DEVICEINFO_H
#define TESTS_PROGRAMS_DEVICEINFO_H

#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <stdbool.h>
#include <stdint.h>

#include "prog.h"

struct facts {
    cl_platform_id platform;
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_version version, c_version, platform_version;
    bool full;       /**< FULL_PROFILE. */
    uint64_t memory; /**< What CL_DEVICE_GLOBAL_MEM_SIZE has to be; 0: nobody said. */
    char *extensions;
};
extern struct facts facts;

struct versions {
    cl_name_version *items;
    size_t count;
};

#define V(major, minor) CL_MAKE_VERSION(major, minor, 0)

/** Count and name a failed check; the program goes on. */
void check_failed(const char *what, const char *file, int line);
#define CHECK(ok) ((ok) ? (void)0 : check_failed(#ok, __FILE__, __LINE__))
#define CHECK_NAMED(ok, what, name)                                                                \
    do {                                                                                           \
        char said[128];                                                                            \
        snprintf(said, sizeof(said), "0x%x is not %s", (unsigned)(name), what);                    \
        if (!(ok))                                                                                 \
            check_failed(said, __FILE__, __LINE__);                                                \
    } while (0)

/** False when --without has the word. */
bool wanted(const char *word);

/** Answers of the device, each checked to have its type's size. Strings and lists are kept. */
uint64_t number(cl_device_info name, size_t size);
#define number32(name)    number(name, sizeof(cl_uint))
#define number64(name)    number(name, sizeof(cl_ulong))
#define number_size(name) number(name, sizeof(size_t))
bool truth(cl_device_info name);
/** Of the device, or the platform. */
char *text_of(cl_uint name);
struct versions versions_of(cl_uint name);
bool versions_have(const struct versions *list, const char *name);
bool words_have(const char *words, const char *word);
size_t words_count(const char *words);
/** True when the device does not know the parameter. */
bool refused(cl_device_info name);

void check_platform(void);
void check_versions(void);
void check_limits(void);
void check_abilities(void);
void check_images(void);
void check_macros(void);

#endif
