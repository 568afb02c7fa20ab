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
 * name its file, so that the folder is flat and no header's name becomes a path of ours. A name
 * that depends on macros (and so on the device) is not rewritten; the files that it may mean are
 * found by name in a folder of their own.
 */

#define NAMES "names"

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

static int headers_stage_make_folder(struct staged *staged, const char *path)
{
    int err = headers_stage_remember(staged, path);
    return err ? err : mkdir(path, S_IRWXU) == 0 || errno == EEXIST ? 0 : -errno;
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

/* True when @name stays inside the folder of names. */
static bool headers_stage_is_inside(const char *name)
{
    if (name[0] == '/' || strchr(name, '\\'))
        return false;
    for (const char *at = name; *at; at += strcspn(at, "/"), at += *at == '/') {
        size_t length = strcspn(at, "/");
        if (length == 0 || (at[0] == '.' && (length == 1 || (length == 2 && at[1] == '.'))))
            return false;
    }
    return name[0] && name[strlen(name) - 1] != '/';
}

/* Make @name refer to the header, unless it refers to another one. */
static int headers_stage_make_name(const struct walk *walk, struct staged *staged, const char *name,
                                   int index)
{
    char path[HEADER_PATH_MAX];
    const char *root = staged->paths[0];
    if (!headers_stage_is_inside(name) ||
        (size_t)snprintf(path, sizeof(path), "%s/" NAMES "/%s", root, name) >= sizeof(path))
        return 0;
    for (char *at = path + strlen(root) + sizeof(NAMES) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        int err = headers_stage_make_folder(staged, path);
        if (err)
            return err == -ENOTDIR ? 0 : err;
    }
    char *CLEANUP(cleanup_free) bytes = NULL;
    size_t size;
    FILE *out = open_memstream(&bytes, &size);
    if (!out)
        return -ENOMEM;
    fputs("#include \"", out);
    headers_stage_put_place(out, walk, root, index);
    fputs("\"\n", out);
    int err = headers_stage_close_stream(out, 0);
    if (!err)
        err = headers_stage_put_file(staged, path, bytes, size);
    return err == -EEXIST || err == -EISDIR || err == -ENOTDIR ? 0 : err;
}

/* The header that a directive means with any definition of macros; WALK_NONE: none, or several. */
static int headers_stage_meaning(struct walk *walk, struct staged *staged,
                                 const struct walk_text *text, const struct directive *directive,
                                 int *ret_index)
{
    const char *at = text->directives.clean + directive->at;
    size_t size = directive->end - directive->at;
    unsigned choices = header_name_is_literal(at, size) ? 1 : macros_choices(&walk->macros);
    struct header_name name;
    int err = 0, index, only = WALK_NONE;
    bool sure = true;
    for (unsigned c = 0; !err && c < choices; c++) {
        if (!header_name_read(&walk->macros, c, at, size, &name))
            continue;
        err = walk_resolve(walk, text, &name, directive->next, &index);
        if (index == WALK_NONE)
            continue;
        if (!err && choices > 1 && index >= 0)
            err = headers_stage_make_name(walk, staged, name.text, index);
        index = index >= 0 ? (int)walk->headers->list[index].same : index;
        sure = sure && (only == WALK_NONE || only == index);
        only = index;
    }
    *ret_index = sure && only >= 0 ? only : WALK_NONE;
    return err;
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
        err = headers_stage_meaning(walk, staged, text, directive, &index);
        if (err || index == WALK_NONE)
            continue;
        fwrite(bytes + at, 1, directive->at - at, out);
        fputc('"', out);
        headers_stage_put_place(out, walk, staged->paths[0], index);
        fputc('"', out);
        for (at = directive->at; at < directive->end; at++)
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
    fprintf(out, "-I %s/" NAMES "%s", root, options[0] ? " " : "");
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
    char names[HEADER_PATH_MAX + sizeof(NAMES) + 1];
    int err = walk_all(&walk);
    if (!err)
        err = headers_stage_make_root(recipe, &staged);
    if (!err) {
        snprintf(names, sizeof(names), "%s/" NAMES, staged.paths[0]);
        err = headers_stage_make_folder(&staged, names);
    }
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
