#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "state/base/array.h"
#include "state/base/cleanup.h"
#include "state/base/files/access.h"
#include "state/base/files/owned.h"
#include "state/base/log.h"
#include "state/recipe/headers_priv.h"

/*
 * Makes a private folder that replaces the former state of the disk. Each directive is rewritten to
 * name its file, so that the folder is flat and no header's name becomes a path of ours.
 */

/* Close @out. @err takes precedence over the stream's own error. */
static int headers_stage_close_stream(FILE *stream, int err)
{
    bool failed = ferror(stream) != 0;
    failed = fclose(stream) != 0 || failed;
    return err || !failed ? err : -EIO;
}

/* True for a folder that other users can neither list nor replace. */
static bool headers_stage_is_safe(const char *path)
{
    struct stat stat;
    return path && path[0] == '/' && strlen(path) < HEADER_PATH_MAX / 2 &&
           !strpbrk(path, " \t\r\n\v\f\"'\\") && lstat(path, &stat) == 0 && S_ISDIR(stat.st_mode) &&
           access_may_manage(geteuid(), stat.st_uid) &&
           (!(stat.st_mode & (S_IWGRP | S_IWOTH)) || stat.st_mode & S_ISVTX);
}

/* A digest of everything that goes into the folder. */
static uint64_t headers_stage_digest(const struct recipe *recipe)
{
    const struct headers *headers = recipe->headers;
    uint64_t sum = XXH64(recipe->options, strlen(recipe->options), 0);
    for (uint32_t i = 0; i < recipe->input_count; i++)
        sum = XXH64(recipe->inputs[i]->bytes, recipe->inputs[i]->size, sum);
    for (uint32_t i = 0; headers && i < headers->count; i++) {
        sum = XXH64(headers->list[i].path, strlen(headers->list[i].path), sum);
        sum =
            XXH64(headers->list[i].bytes ? headers->list[i].bytes : "", headers->list[i].size, sum);
    }
    return sum;
}

static int headers_stage_remember(struct staged *staged, const char *path)
{
    if (!array_make_room(&staged->paths, staged->count, sizeof(path)))
        return -ENOMEM;
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    staged->paths[staged->count++] = copy;
    return 0;
}

/*
 * The same program always gets the same folder, because a driver's cache depends on its path. If
 * another user has that name already, another name is used.
 */
static int headers_stage_make_root(const struct recipe *recipe, struct staged *staged)
{
    const char *const bases[] = {secure_getenv("XDG_RUNTIME_DIR"), secure_getenv("TMPDIR"), "/tmp",
                                 "/var/tmp", "/dev/shm"};
    char path[HEADER_PATH_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
        if (!headers_stage_is_safe(bases[i]))
            continue;
        snprintf(path, sizeof(path), "%s/reseat-headers-%u-%016llx", bases[i], (unsigned)geteuid(),
                 (unsigned long long)headers_stage_digest(recipe));
        if (mkdir(path, S_IRWXU) == 0)
            return headers_stage_remember(staged, path);
        strcat(path, ".XXXXXX");
        if (mkdtemp(path))
            return headers_stage_remember(staged, path);
    }
    log_warn("no folder can be made for the headers of a program, which are not what they were");
    return -EACCES;
}

static int headers_stage_put_file(struct staged *staged, const char *path, const char *bytes,
                                  size_t size)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    struct owned CLEANUP(owned_close) file = OWNED_NONE;
    int err = headers_stage_remember(staged, path);
    if (!err)
        err = owned_take(open(path, flags, 0600), &file);
    return err ? err : owned_append(&file, bytes, size);
}

/* Write the path of a header in the folder. */
static void headers_stage_put_place(FILE *out, const struct walk *walk, const char *root, int index)
{
    fprintf(out, "%s/%05u.h", root, walk->headers->list[index].same);
}

/* Write @bytes with directives that name the files in the folder. Lines keep their numbers. */
static int headers_stage_rewrite(struct walk *walk, struct staged *staged,
                                 const struct walk_text *text, const char *bytes, size_t size,
                                 FILE *out)
{
    size_t at = 0;
    int err = 0, index;
    for (size_t i = 0; !err && i < text->directives.count; i++) {
        const struct directive *directive = &text->directives.list[i];
        if (directive->kind != DIRECTIVE_INCLUDE || directive->at < at)
            continue;
        err = walk_directive(walk, text, directive, &index);
        if (err || index < 0)
            continue;
        fwrite(bytes + at, 1, directive->at - at, out);
        fputc('"', out);
        headers_stage_put_place(out, walk, staged->paths[0], index);
        fputc('"', out);
        /* What a continuation split lies under blanks. */
        size_t end = directive->end;
        while (end < size && preprocess_is_blank(text->directives.clean[end]))
            end++;
        for (at = directive->at; at < end; at++)
            if (bytes[at] == '\n')
                fputs(" \\\n", out);
    }
    fwrite(bytes + at, 1, size - at, out);
    return err;
}

/* The first line gives the header's own name, for __FILE__ and the compiler's messages. */
static int headers_stage_header(struct walk *walk, struct staged *staged, uint32_t i)
{
    const struct header *header = &walk->headers->list[i];
    char path[HEADER_PATH_MAX];
    char *CLEANUP(cleanup_free) bytes = NULL;
    size_t size;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        return -ENOMEM;
    snprintf(path, sizeof(path), "%s/%05u.h", staged->paths[0], i);
    fputs("#line 1 \"", out);
    for (const char *at = header->path; *at; at++) {
        if (*at == '"' || *at == '\\')
            fputc('\\', out);
        if ((unsigned char)*at >= ' ')
            fputc(*at, out);
    }
    fputs("\"\n", out);
    int err = headers_stage_rewrite(walk, staged, &walk->texts[walk->recipe->input_count + i],
                                    header->bytes, header->size, out);
    err = headers_stage_close_stream(out, err);
    return err ? err : headers_stage_put_file(staged, path, bytes, size);
}

/* Write the options, with this folder instead of those that headers came from. */
static int headers_stage_rewrite_options(struct walk *walk, const struct staged *staged, FILE *out)
{
    const char *options = walk->recipe->options, *root = staged->paths[0];
    struct option option;
    size_t cursor = 0, at = 0;
    int found, err = 0;
    while (!err && (found = option_next(options, &cursor, &option)) == 1) {
        struct header_name name = {.quoted = true};
        int index = WALK_NONE;
        if (option.kind == OPTION_INCLUDE && strlen(option.argument) < sizeof(name.text)) {
            strcpy(name.text, option.argument);
            err = walk_resolve(walk, &walk->texts[0], &name, false, &index);
        }
        free(option.argument);
        if (option.kind != OPTION_FOLDER && index < 0)
            continue;
        fwrite(options + at, 1, option.at - at, out);
        if (index >= 0) {
            fputs("-include ", out);
            headers_stage_put_place(out, walk, root, index);
        }
        at = option.end;
    }
    fputs(options + at, out);
    return err ? err : found;
}

static int headers_stage_input(struct walk *walk, struct staged *staged, uint32_t i,
                               struct recipe **ret_input)
{
    const struct recipe *input = walk->recipe->inputs[i];
    char *CLEANUP(cleanup_free) bytes = NULL;
    size_t size;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        return -ENOMEM;
    int err = headers_stage_rewrite(walk, staged, &walk->texts[i], input->bytes, input->size, out);
    err = headers_stage_close_stream(out, err);
    const char *text = bytes;
    return err ? err : recipe_source(size ? 1 : 0, &text, &size, ret_input);
}

static int headers_stage_recipe(struct walk *walk, struct staged *staged)
{
    const struct recipe *recipe = walk->recipe;
    char *CLEANUP(cleanup_free) options = NULL;
    size_t size;
    FILE *out = open_memstream(&options, &size);
    int err =
        out ? headers_stage_close_stream(out, headers_stage_rewrite_options(walk, staged, out))
            : -ENOMEM;
    struct recipe **inputs = calloc(recipe->input_count, sizeof(struct recipe *));
    err = inputs ? err : -ENOMEM;
    for (uint32_t i = 0; !err && i < recipe->input_count; i++)
        err = headers_stage_input(walk, staged, i, &inputs[i]);
    if (!err)
        err = recipe_again(recipe, options, inputs, &staged->recipe);
    for (uint32_t i = 0; inputs && i < recipe->input_count; i++)
        recipe_unref(inputs[i]);
    free(inputs);
    return err;
}

int headers_stage(const struct recipe *recipe, struct staged *ret_staged)
{
    struct headers none = {0};
    struct walk walk = {
        .recipe = recipe, .headers = recipe->headers ? recipe->headers : &none, .fixed = true};
    struct staged staged = {0};
    int err = walk_all(&walk);
    if (!err)
        err = headers_stage_make_root(recipe, &staged);
    for (uint32_t i = 0; !err && i < walk.headers->count; i++)
        if (walk.headers->list[i].same == i)
            err = headers_stage_header(&walk, &staged, i);
    if (!err)
        err = headers_stage_recipe(&walk, &staged);
    walk_finish(&walk);
    if (err)
        headers_unstage(&staged);
    else
        *ret_staged = staged;
    return err;
}

void headers_unstage(struct staged *staged)
{
    while (staged->count > 0) {
        char *path = staged->paths[--staged->count];
        if (unlink(path) != 0)
            rmdir(path);
        free(path);
    }
    free(staged->paths);
    recipe_unref(staged->recipe);
    *staged = (struct staged){0};
}
