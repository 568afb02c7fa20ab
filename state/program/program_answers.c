#include <stdlib.h>
#include <string.h>

#include "state/base/cleanup.h"
#include "state/program/program_priv.h"

/* Compares what the kernels of two programs answer to queries. */

/* Attributes and names of types are program text. */
#define ANSWER_MAX ((size_t)1 << 20)

struct asked {
    struct residence *residence;
    cl_kernel kernel;
    cl_uint arg;
    bool of_arg;
    struct content_hash *hash;
};

static cl_int program_answers_kernel_info(const struct asked *asked, cl_uint name, size_t size,
                                          void *value, size_t *ret_size)
{
    const cl_icd_dispatch *cl = asked->residence->cl;
    return asked->of_arg
               ? cl->clGetKernelArgInfo(asked->kernel, asked->arg, name, size, value, ret_size)
               : cl->clGetKernelInfo(asked->kernel, name, size, value, ret_size);
}

static cl_int program_answers_group_info(const struct asked *asked, cl_uint name, size_t size,
                                         void *value, size_t *ret_size)
{
    return asked->residence->cl->clGetKernelWorkGroupInfo(
        asked->kernel, asked->residence->device->id, name, size, value, ret_size);
}

/* Add an answer to the hash, or the error that the driver returns for it. */
static bool program_answers_add(const struct asked *asked,
                                cl_int (*ask)(const struct asked *asked, cl_uint name, size_t size,
                                              void *value, size_t *ret_size),
                                cl_uint name)
{
    size_t size = 0;
    cl_int error = ask(asked, name, 0, NULL, &size);
    if (size > ANSWER_MAX)
        return false;
    unsigned char *CLEANUP(cleanup_free) bytes = calloc(1, size ? size : 1);
    if (!bytes)
        return false;
    if (error == CL_SUCCESS)
        error = ask(asked, name, size, bytes, NULL);
    content_hash_number(asked->hash, name);
    content_hash_number(asked->hash, (uint64_t)(int64_t)error);
    if (error == CL_SUCCESS)
        content_hash_bytes(asked->hash, bytes, size);
    return true;
}

static bool program_answers_add_kernel(struct residence *residence, cl_kernel kernel,
                                       struct content_hash *hash)
{
    static const cl_kernel_arg_info of_arg[] = {
        CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_TYPE_NAME,
        CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_ARG_NAME};
    static const cl_kernel_work_group_info of_group[] = {
        CL_KERNEL_WORK_GROUP_SIZE, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, CL_KERNEL_LOCAL_MEM_SIZE,
        CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, CL_KERNEL_PRIVATE_MEM_SIZE};
    struct asked asked = {.residence = residence, .kernel = kernel, .hash = hash};
    cl_uint count = 0;
    bool done = residence->cl->clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof(count), &count,
                                               NULL) == CL_SUCCESS &&
                program_answers_add(&asked, program_answers_kernel_info, CL_KERNEL_ATTRIBUTES);
    content_hash_number(hash, count);
    for (size_t i = 0; done && i < ARRAY_SIZE(of_group); i++)
        done = program_answers_add(&asked, program_answers_group_info, of_group[i]);
    asked.of_arg = true;
    for (; done && asked.arg < count; asked.arg++)
        for (size_t i = 0; done && i < ARRAY_SIZE(of_arg); i++)
            done = program_answers_add(&asked, program_answers_kernel_info, of_arg[i]);
    return done;
}

static int program_answers_by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names in @text, sorted. Writes NULs into @text. NULL without memory. */
static char **program_answers_sorted_names(char *text, size_t *ret_count)
{
    size_t count = 0, room = 2;
    for (const char *at = text; *at; at++)
        room += *at == ';';
    char **names = calloc(room, sizeof(*names));
    for (char *name = names ? strsep(&text, ";") : NULL; name; name = strsep(&text, ";"))
        if (*name)
            names[count++] = name;
    if (names)
        qsort(names, count, sizeof(*names), program_answers_by_name);
    *ret_count = count;
    return names;
}

bool program_names_same(const char *one, const char *other)
{
    char *CLEANUP(cleanup_free) first = strdup(one), *CLEANUP(cleanup_free) second = strdup(other);
    size_t count = 0, others = 0;
    char **CLEANUP(cleanup_free) mine = first ? program_answers_sorted_names(first, &count) : NULL;
    char **CLEANUP(cleanup_free) theirs =
        second ? program_answers_sorted_names(second, &others) : NULL;
    bool same = mine && theirs && count == others;
    for (size_t i = 0; same && i < count; i++)
        same = strcmp(mine[i], theirs[i]) == 0;
    return same;
}

bool program_answers_hash(struct residence *residence, cl_program real, const char *names,
                          unsigned char ret[CONTENT_HASH_SIZE])
{
    const cl_icd_dispatch *cl = residence->cl;
    char *CLEANUP(cleanup_free) text = strdup(names);
    size_t count = 0;
    char **CLEANUP(cleanup_free) sorted = text ? program_answers_sorted_names(text, &count) : NULL;
    struct content_hash hash;
    bool done = sorted != NULL;
    content_hash_begin(&hash);
    for (size_t i = 0; done && i < count; i++) {
        cl_int error = CL_SUCCESS;
        cl_kernel kernel = cl->clCreateKernel(real, sorted[i], &error);
        if (!kernel)
            return false;
        content_hash_string(&hash, sorted[i]);
        done = program_answers_add_kernel(residence, kernel, &hash);
        cl->clReleaseKernel(kernel);
    }
    content_hash_end(&hash, ret);
    return done;
}
