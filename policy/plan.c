#include "policy/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

/* Versions are packed as by CL_MAKE_VERSION, without including the headers of OpenCL. */
#define VERSION_MAJOR(v) ((unsigned)(v) >> 22)
#define VERSION_MINOR(v) ((unsigned)(v) >> 12 & 0x3ff)

struct limit {
    const char *what; /* "work-items in a work-group". */
    uint64_t used, offered;
};

struct ability {
    const char *what; /* "double precision (fp64)". */
    bool used, offered;
};

static const char *plan_verb(const struct plan_use *use)
{
    return use->stated ? "asks for" : "has used";
}

static void plan_cap(uint64_t *used, uint64_t offered)
{
    if (*used > offered)
        *used = offered;
}

static void plan_cap32(uint32_t *used, uint32_t offered)
{
    if (*used > offered)
        *used = offered;
}

static bool plan_fits_limits(const struct plan_use *use, const struct plan_offer *offer,
                             char *ret_reason, size_t reason_size)
{
    const struct plan_use *most = &offer->limits;
    const struct limit limits[] = {
        {"bytes of device memory", use->device_memory, offer->memory_available},
        {"bytes in one memory object", use->largest_object, most->largest_object},
        {"work-items in a work-group", use->work_group_size, most->work_group_size},
        {"compute units", use->compute_units, most->compute_units},
        {"dimensions in a launch", use->work_dimensions, most->work_dimensions},
        {"work-items in dimension 0", use->work_item_sizes[0], most->work_item_sizes[0]},
        {"work-items in dimension 1", use->work_item_sizes[1], most->work_item_sizes[1]},
        {"work-items in dimension 2", use->work_item_sizes[2], most->work_item_sizes[2]},
        {"bytes of local memory", use->local_memory, most->local_memory},
        {"bytes of kernel arguments", use->parameter_size, most->parameter_size},
        {"pixels across a 2D image", use->image2d[0], most->image2d[0]},
        {"pixels down a 2D image", use->image2d[1], most->image2d[1]},
        {"pixels across a 3D image", use->image3d[0], most->image3d[0]},
        {"pixels down a 3D image", use->image3d[1], most->image3d[1]},
        {"pixels deep in a 3D image", use->image3d[2], most->image3d[2]},
        {"pixels in an image over a buffer", use->image_buffer, most->image_buffer},
        {"layers in an image array", use->image_array, most->image_array},
        {"images read by one kernel", use->read_images, most->read_images},
        {"images written by one kernel", use->write_images, most->write_images},
        {"samplers in one kernel", use->samplers, most->samplers},
    };

    for (size_t i = 0; i < COUNT_OF(limits); i++) {
        if (limits[i].used <= limits[i].offered)
            continue;
        snprintf(ret_reason, reason_size,
                 "%s: the program %s %" PRIu64 " %s, the device offers %" PRIu64, offer->name,
                 plan_verb(use), limits[i].used, limits[i].what, limits[i].offered);
        return false;
    }
    return true;
}

static bool plan_fits_abilities(const struct plan_use *use, const struct plan_offer *offer,
                                char *ret_reason, size_t reason_size)
{
    const struct plan_use *has = &offer->limits;
    const struct ability abilities[] = {
        {"images", use->images, has->images},
        {"double precision (fp64)", use->fp64, has->fp64},
        {"half precision (fp16)", use->fp16, has->fp16},
        {"64-bit atomics", use->int64_atomics, has->int64_atomics},
        {"programs in intermediate language", use->il, has->il},
        {"work-groups that do not divide the launch", use->non_uniform, has->non_uniform},
        {"sub-groups", use->subgroups, has->subgroups},
    };

    for (size_t i = 0; i < COUNT_OF(abilities); i++) {
        if (!abilities[i].used || abilities[i].offered)
            continue;
        snprintf(ret_reason, reason_size, "%s: the program %s %s, the device offers none",
                 offer->name, plan_verb(use), abilities[i].what);
        return false;
    }
    return true;
}

/* A driver may accept more than its device advertises, and a compiler may ignore what it does not
 * know. So a value that the program used although its device did not offer it does not exclude
 * other devices. Memory is not compared here, since it depends on other programs. */
static void plan_cap_to_served(struct plan_use *use, const struct plan_use *has)
{
    plan_cap(&use->work_group_size, has->work_group_size);
    for (unsigned i = 0; i < 3; i++)
        plan_cap(&use->work_item_sizes[i], has->work_item_sizes[i]);
    plan_cap(&use->local_memory, has->local_memory);
    plan_cap(&use->parameter_size, has->parameter_size);
    plan_cap32(&use->read_images, has->read_images);
    plan_cap32(&use->write_images, has->write_images);
    plan_cap32(&use->samplers, has->samplers);
    plan_cap32(&use->c_version, has->c_version);
    use->fp64 &= has->fp64;
    use->fp16 &= has->fp16;
    use->int64_atomics &= has->int64_atomics;
    use->il &= has->il;
    use->non_uniform &= has->non_uniform;
    use->subgroups &= has->subgroups;
}

static bool plan_has_word(const char *words, const char *word)
{
    size_t length = strlen(word);

    for (words += strspn(words, " "); *words; words += strspn(words, " ")) {
        size_t end = strcspn(words, " ");

        if (end == length && !memcmp(words, word, length))
            return true;
        words += end;
    }
    return false;
}

static bool plan_offers_extension(const struct plan_offer *offer, const char *name)
{
    return offer->extensions && plan_has_word(offer->extensions, name);
}

static bool plan_fits_language(const struct plan_use *use, const struct plan_offer *offer,
                               char *ret_reason, size_t reason_size)
{
    for (size_t i = 0; i < use->extension_count; i++) {
        if (plan_offers_extension(offer, use->extensions[i]) ||
            (use->served && !plan_offers_extension(use->served, use->extensions[i])))
            continue;
        snprintf(ret_reason, reason_size, "%s: the program has used %s, the device lacks it",
                 offer->name, use->extensions[i]);
        return false;
    }
    if (use->c_version <= offer->limits.c_version)
        return true;
    snprintf(ret_reason, reason_size,
             "%s: the program has used OpenCL C %u.%u, the device offers up to %u.%u", offer->name,
             VERSION_MAJOR(use->c_version), VERSION_MINOR(use->c_version),
             VERSION_MAJOR(offer->limits.c_version), VERSION_MINOR(offer->limits.c_version));
    return false;
}

/* Values that must be equal. */
static bool plan_fits_layout(const struct plan_use *use, const struct plan_offer *offer,
                             char *ret_reason, size_t reason_size)
{
    const struct plan_use *has = &offer->limits;

    if (use->address_bits && has->address_bits && use->address_bits != has->address_bits) {
        snprintf(ret_reason, reason_size,
                 "%s: the program has used pointers of %u bits, the device offers %u", offer->name,
                 use->address_bits, has->address_bits);
        return false;
    }
    if (use->origin_alignment && has->origin_alignment &&
        use->origin_alignment % has->origin_alignment) {
        snprintf(ret_reason, reason_size,
                 "%s: the program has used sub-buffers aligned to %" PRIu64
                 " bits, the device wants %" PRIu64,
                 offer->name, use->origin_alignment, has->origin_alignment);
        return false;
    }
    return true;
}

bool plan_fits(const struct plan_use *use, const struct plan_offer *offer, char *ret_reason,
               size_t reason_size)
{
    struct plan_use needed = *use;

    if (use->served)
        plan_cap_to_served(&needed, &use->served->limits);
    return plan_fits_layout(&needed, offer, ret_reason, reason_size) &&
           plan_fits_abilities(&needed, offer, ret_reason, reason_size) &&
           plan_fits_language(&needed, offer, ret_reason, reason_size) &&
           plan_fits_limits(&needed, offer, ret_reason, reason_size);
}
