#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/base/clock.h"
#include "state/base/log.h"
#include "state/program/program_priv.h"

/* Make programs from the library of device binaries, and keep built ones there. A program that a
 * driver loads from a binary may answer queries differently than one built from source. So a binary
 * is used only if its kernels answer as those of the build did; the build's log is kept beside it.
 */

/* Only executables are kept: few drivers give a binary of a compiled object. */
static bool program_library_is_kept(const struct recipe *recipe)
{
    return recipe_binary_type(recipe) == CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
}

static int program_library_key_of(const struct recipe *recipe, const struct device *device,
                                  const char *prologue, struct library_key *ret_key)
{
    return library_key(recipe, prologue, &device->key, &device->info, ret_key);
}

/* Find the entry that was built here; without one, the entry that an operator added, whose key is
 * made without a prologue. */
static int program_library_find(const struct recipe *recipe, const struct device *device,
                                struct library_key *ret_key, struct library_entry *ret_entry)
{
    struct library_key key, plain;
    struct library_entry entry;
    int err = program_library_key_of(recipe, device, program_prologue, &key);
    if (err)
        return err;
    *ret_key = key;
    err = library_find(&the_library, &key, ret_entry);
    if (err != -ENOENT || !program_prologue[0] ||
        program_library_key_of(recipe, device, "", &plain) != 0)
        return err;
    if (library_find(&the_library, &plain, &entry) != 0)
        return err;
    if (entry.origin == LIBRARY_ADDED) {
        *ret_entry = entry;
        return 0;
    }
    library_entry_finish(&entry);
    return err;
}

/* True for errors that say that the driver cannot use the binary; false for a shortage. */
static bool program_library_is_refusal(cl_int error)
{
    return error == CL_INVALID_BINARY || error == CL_INVALID_PROGRAM ||
           error == CL_INVALID_PROGRAM_EXECUTABLE || error == CL_INVALID_VALUE ||
           error == CL_INVALID_BUILD_OPTIONS || error == CL_INVALID_OPERATION ||
           error == CL_BUILD_PROGRAM_FAILURE || error == CL_LINK_PROGRAM_FAILURE;
}

/* Build with the program's options: the driver may still compile a part. A link's options are in
 * the binary already. */
static cl_int program_library_build(const struct recipe *recipe, struct residence *residence,
                                    cl_program real)
{
    const struct recipe *origin = recipe_origin(recipe);
    if (recipe->kind == RECIPE_BUILT && recipe->inputs[0] == origin)
        return recipe_build_real(origin, residence, real, recipe->options, NULL);
    return recipe_build_real(NULL, residence, real, "", NULL);
}

static cl_int program_library_make(const struct recipe *recipe, const struct library_entry *entry,
                                   struct residence *residence, cl_program *ret_real)
{
    const cl_icd_dispatch *cl = residence->cl;
    const cl_device_id device = residence->device->id;
    const unsigned char *binary = entry->binary;
    cl_int status = CL_SUCCESS, error = CL_SUCCESS;
    cl_program real = cl->clCreateProgramWithBinary(residence->context, 1, &device,
                                                    &entry->binary_size, &binary, &status, &error);
    if (!real)
        return error != CL_SUCCESS ? error : CL_INVALID_BINARY;
    error = error != CL_SUCCESS ? error : status;
    if (error == CL_SUCCESS)
        error = program_library_build(recipe, residence, real);
    if (error != CL_SUCCESS) {
        cl->clReleaseProgram(real);
        return error;
    }
    *ret_real = real;
    return CL_SUCCESS;
}

/* Fill @outcome as the build from source did: compare the driver's answers, then take log and names
 * from the entry. */
static cl_int program_library_take_outcome(const struct library_entry *entry,
                                           struct residence *residence, cl_program real,
                                           struct program_outcome *outcome)
{
    unsigned char answers[CONTENT_HASH_SIZE];
    program_outcome_query(residence, real, outcome);
    if (outcome->status != CL_BUILD_SUCCESS || outcome->type != CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
        return CL_INVALID_BINARY;
    if (entry->origin == LIBRARY_ADDED)
        return CL_SUCCESS;
    if (!outcome->kernel_names ||
        !program_answers_hash(residence, real, outcome->kernel_names, answers))
        return CL_OUT_OF_HOST_MEMORY;
    if (memcmp(answers, entry->answers, sizeof(answers)) != 0)
        return CL_INVALID_KERNEL_DEFINITION;
    char *log = strdup(entry->log), *names = strdup(entry->kernels);
    if (!log || !names) {
        free(log);
        free(names);
        return CL_OUT_OF_HOST_MEMORY;
    }
    free(outcome->log);
    free(outcome->kernel_names);
    outcome->log = log;
    outcome->kernel_names = names;
    outcome->kernel_count = entry->kernel_count;
    outcome->globals = (size_t)entry->globals;
    return CL_SUCCESS;
}

/* Replace the entry by one without a binary, so that it is not tried again. */
static void program_library_mark_unfit(const struct library_key *key,
                                       const struct library_entry *entry,
                                       const struct residence *residence)
{
    struct library_entry unfit = *entry;
    log_info("binaries of %s say other things of a program's kernels (%s) than its compiler does: "
             "it is always built from source",
             device_name(residence->device), entry->kernels);
    unfit.origin = LIBRARY_UNFIT;
    unfit.log = "";
    unfit.binary_size = 0;
    (void)!library_keep(&the_library, key, &unfit);
}

static void program_library_refused(const struct library_key *key,
                                    const struct library_entry *entry,
                                    const struct residence *residence, cl_int error,
                                    struct program_lookup *lookup)
{
    char name[LIBRARY_NAME_MAX];
    library_name(key, name);
    if (error == CL_INVALID_KERNEL_DEFINITION) {
        program_library_mark_unfit(key, entry, residence);
    } else if (!program_library_is_refusal(error)) {
        log_info("the library's binary %s cannot be used now (error %d)", name, error);
    } else if (entry->origin == LIBRARY_ADDED) {
        log_warn("%s refuses the binary %s that was added to the library (error %d): the program "
                 "is built from source",
                 device_name(residence->device), name, error);
    } else {
        log_info("%s refuses the library's binary %s (error %d): built from source again",
                 device_name(residence->device), name, error);
        library_drop(&the_library, key);
        lookup->keep = true;
    }
}

/* What reading the source said, of a binary that was built here. If another version of us read it,
 * read it again and renew the entry. */
static struct source_facts *program_library_facts(const struct recipe *recipe,
                                                  const struct library_key *key,
                                                  const struct library_entry *entry)
{
    struct library_entry renewed = *entry;
    if (entry->origin != LIBRARY_BUILT)
        return NULL;
    struct source_facts *facts = source_facts_unpack(recipe, entry->facts, entry->facts_size);
    if (facts)
        return facts;
    facts = source_facts_read(recipe, entry->kernels);
    void *CLEANUP(cleanup_free) bytes =
        facts ? source_facts_pack(facts, &renewed.facts_size) : NULL;
    renewed.facts = bytes;
    if (bytes)
        (void)!library_keep(&the_library, key, &renewed);
    return facts;
}

/* Of such a device and recipe there may be entries. */
static bool program_library_may_have(const struct recipe *recipe, const struct device *device)
{
    return library_is_on(&the_library) && program_library_is_kept(recipe) &&
           device_version(device) >= CL_MAKE_VERSION(1, 2, 0);
}

static bool program_library_gives_binaries(const struct device *device)
{
    return !(device->quirks & (QUIRK_BINARY_COMPILES | QUIRK_BINARY_IS_IL));
}

bool program_library_would_keep(const struct recipe *recipe, const struct device *device,
                                struct library_key *ret_key)
{
    return program_library_may_have(recipe, device) && program_library_gives_binaries(device) &&
           program_library_key_of(recipe, device, program_prologue, ret_key) == 0;
}

bool program_library_load(const struct recipe *recipe, struct residence *residence,
                          cl_program *ret_real, struct program_outcome *outcome,
                          struct program_lookup *ret_lookup)
{
    struct library_entry CLEANUP(library_entry_finish) entry = {0};
    const struct device *device = residence->device;
    struct program_outcome told = {0};
    cl_program real = NULL;
    ret_lookup->keep = false;
    if (!program_library_may_have(recipe, device))
        return false;
    int err = program_library_find(recipe, device, &ret_lookup->key, &entry);
    if (err) {
        ret_lookup->keep = err == -ENOENT && program_library_gives_binaries(device);
        return false;
    }
    if (entry.origin == LIBRARY_UNFIT)
        return false;
    cl_int error = program_library_make(recipe, &entry, residence, &real);
    if (error == CL_SUCCESS)
        error = program_library_take_outcome(&entry, residence, real, &told);
    if (error == CL_SUCCESS) {
        told.facts = program_library_facts(recipe, &ret_lookup->key, &entry);
        log_debug("a program with the kernels %s is made from the library's binary for %s",
                  told.kernel_names ? told.kernel_names : "", device_name(device));
        *outcome = told;
        *ret_real = real;
        return true;
    }
    program_outcome_finish(&told);
    if (real)
        residence->cl->clReleaseProgram(real);
    program_library_refused(&ret_lookup->key, &entry, residence, error, ret_lookup);
    return false;
}

/* The bytes: free(). NULL where the driver has none, or without memory. */
static unsigned char *program_library_read_binary(const struct residence *residence,
                                                  cl_program real, size_t *ret_size)
{
    const cl_icd_dispatch *cl = residence->cl;
    size_t sizes[2] = {0}, written = 0;
    /* The program was made for one device, so there is one size. */
    if (cl->clGetProgramInfo(real, CL_PROGRAM_BINARY_SIZES, sizeof(sizes), sizes, &written) !=
            CL_SUCCESS ||
        written != sizeof(sizes[0]) || sizes[0] == 0 || sizes[0] > LIBRARY_ENTRY_MAX)
        return NULL;
    unsigned char *binary = calloc(1, sizes[0]), *binaries[] = {binary};
    if (binary && cl->clGetProgramInfo(real, CL_PROGRAM_BINARIES, sizeof(binaries), binaries,
                                       NULL) != CL_SUCCESS) {
        free(binary);
        return NULL;
    }
    *ret_size = sizes[0];
    return binary;
}

/* What an entry points to and owns; its other pointers are borrowed of program and device. */
struct parts {
    void *binary, *facts;
};

static void program_library_parts_finish(struct parts *parts)
{
    free(parts->binary);
    free(parts->facts);
}

/* Fill in an entry; its strings are borrowed of @outcome and the device. False: there is nothing to
 * keep. */
static bool program_library_read_entry(const struct recipe *recipe, struct residence *residence,
                                       cl_program real, struct program_outcome *outcome,
                                       struct library_entry *ret_entry, struct parts *ret_parts)
{
    const struct device *device = residence->device;
    struct library_entry entry = {
        .origin = LIBRARY_BUILT,
        .created_ms = clock_wall_ms(),
        .device = devinfo_string(&device->info, CL_DEVICE_NAME),
        .platform = device->key.platform,
        .driver = devinfo_string(&device->info, CL_DRIVER_VERSION),
        .kernels = outcome->kernel_names,
        .kernel_count = (uint32_t)outcome->kernel_count,
        .type = outcome->type,
        .globals = outcome->globals,
        .log = outcome->log ? outcome->log : "",
    };
    if (outcome->status != CL_BUILD_SUCCESS || outcome->type != CL_PROGRAM_BINARY_TYPE_EXECUTABLE ||
        !outcome->kernel_names ||
        !program_answers_hash(residence, real, outcome->kernel_names, entry.answers))
        return false;
    entry.binary = ret_parts->binary =
        program_library_read_binary(residence, real, &entry.binary_size);
    if (!entry.binary)
        return false;
    outcome->facts = source_facts_read(recipe, outcome->kernel_names);
    if (outcome->facts)
        entry.facts = ret_parts->facts = source_facts_pack(outcome->facts, &entry.facts_size);
    *ret_entry = entry;
    return true;
}

static void program_library_put(const struct library_key *key, const struct residence *residence,
                                const struct library_entry *entry)
{
    if (library_keep(&the_library, key, entry) == 0)
        log_debug("the binary for %s of a program with the kernels %s is in the library now",
                  device_name(residence->device), entry->kernels);
}

void program_library_keep(const struct program_lookup *lookup, const struct recipe *recipe,
                          struct residence *residence, cl_program real,
                          struct program_outcome *outcome)
{
    struct parts CLEANUP(program_library_parts_finish) parts = {0};
    struct library_entry entry;
    if (program_library_read_entry(recipe, residence, real, outcome, &entry, &parts))
        program_library_put(&lookup->key, residence, &entry);
}

/* True when the build of @edition has ended and no other has begun. */
static bool program_library_is_settled(struct program *program, uint32_t edition)
{
    pthread_mutex_lock(&program->lock);
    bool settled = !program->details->building && atomic_load(&program->edition) == edition;
    pthread_mutex_unlock(&program->lock);
    return settled;
}

void program_library_keep_asked(struct program *program, const struct recipe *recipe,
                                uint32_t edition, struct residence *residence, cl_program real)
{
    const struct device *device = residence->device;
    struct program_outcome CLEANUP(program_outcome_finish) outcome = {0};
    struct library_entry CLEANUP(library_entry_finish) found = {0};
    struct parts CLEANUP(program_library_parts_finish) parts = {0};
    struct library_entry entry;
    struct library_key key;
    if (!program_library_is_kept(recipe) || device_version(device) < CL_MAKE_VERSION(1, 2, 0) ||
        program_library_find(recipe, device, &key, &found) != -ENOENT)
        return;
    program_outcome_query(residence, real, &outcome);
    /* While another build is under way, the driver's binary may be of either. */
    if (program_library_read_entry(recipe, residence, real, &outcome, &entry, &parts) &&
        program_library_is_settled(program, edition))
        program_library_put(&key, residence, &entry);
}

/* Can the program be made on a device without a compiler? */
static bool program_library_is_makeable(const struct recipe *recipe, const struct device *device)
{
    struct library_entry CLEANUP(library_entry_finish) entry = {0};
    struct library_key key;
    if (recipe)
        recipe = recipe_executed(recipe);
    if (!recipe || recipe->kind == RECIPE_SOURCE || recipe->kind == RECIPE_IL)
        return true;
    return library_is_on(&the_library) && program_library_is_kept(recipe) &&
           program_library_find(recipe, device, &key, &entry) == 0 && entry.origin != LIBRARY_UNFIT;
}

bool program_library_serves(const struct vdev *vdev, const struct device *device, char *ret_kernels,
                            size_t size)
{
    uintptr_t cursor = 0;
    struct program *program;
    bool serves = true;
    if (devinfo_scalar(&device->info, CL_DEVICE_COMPILER_AVAILABLE, CL_TRUE))
        return true;
    while (serves && (program = object_next(OBJECT_PROGRAM, &cursor))) {
        pthread_mutex_lock(&program->lock);
        struct recipe *CLEANUP(recipe_unref_pointer) recipe =
            program->recipe ? recipe_ref(program->recipe) : NULL;
        const char *names = program->details->kernel_names;
        (void)!snprintf(ret_kernels, size, "%s", names && names[0] ? names : "without a name");
        pthread_mutex_unlock(&program->lock);
        serves = context_vdev_index(program->context, vdev) < 0 ||
                 program_library_is_makeable(recipe, device);
        object_unhold(program);
    }
    return serves;
}
