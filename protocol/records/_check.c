/* The compiled form of `check_records` in check.py: the same results and the same errors, in a hundredth of the time.
 * And `plain_batch`: the fields of a small, ordinary batch in which `validate` would find no error.
 *
 * No count or size is trusted here. `pos` only grows, by less than 2**32 a step, so it cannot overflow, and every read
 * comes after a comparison with the end of the data. As in Python, a record may first exceed its size, or the data: the
 * next read, or the comparison at its end, finds that.
 *
 * While many records are checked (megabytes), other threads may run from time to time; the loop is one of them.
 *
 * Python's stable ABI from 3.11 on: one build serves all later versions, too.
 */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define OTHERS_RUN_EVERY 0xFFFF /* records, less one */

static PyObject *InvalidRecord;

typedef struct {
    const uint8_t *data;
    int64_t size;
    int64_t pos;
    int64_t index; /* of the record that `pos` is in */
} Reader;

typedef struct {
    int64_t lowest;  /* timestamp deltas */
    int64_t highest;
    int64_t highest_index;
    bool null_key;
} Summary;

static bool cut_short(const Reader *in)
{
    PyErr_Format(InvalidRecord, "the batch ends within record %lld", (long long)in->index);
    return false;
}

static bool refuse(const Reader *in, const char *format)
{
    PyErr_Format(InvalidRecord, format, (long long)in->index);
    return false;
}

static int64_t unzigzag(uint64_t raw)
{
    return (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
}

/* Read a varint, still in zig-zag: `bits` is 32 (at most 5 bytes) or 64 (10). */
static bool read_long_varint(Reader *in, int bits, uint64_t *raw)
{
    uint64_t value = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (in->pos >= in->size)
            return cut_short(in);
        uint64_t byte = in->data[in->pos++];
        value |= (byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (shift + 7 > bits && byte >> (bits - shift))
                break;
            *raw = value;
            return true;
        }
    }
    PyErr_SetString(InvalidRecord, "a varint is too long");
    return false;
}

/* Read a varint fast: nearly all have one or two bytes. */
static inline bool read_varint(Reader *in, int bits, uint64_t *raw)
{
    int64_t left = in->size - in->pos;
    if (left < 2)
        return read_long_varint(in, bits, raw);
    const uint8_t *at = in->data + in->pos;
    if (at[0] < 0x80) {
        in->pos += 1;
        *raw = at[0];
        return true;
    }
    if (at[1] < 0x80) {
        in->pos += 2;
        *raw = (at[0] & 0x7F) | (uint64_t)at[1] << 7;
        return true;
    }
    return read_long_varint(in, bits, raw);
}

static bool skip_headers(Reader *in, int64_t end)
{
    uint64_t raw;
    if (!read_varint(in, 32, &raw))
        return false;
    int64_t count = unzigzag(raw);
    if (count < 0 || count > end - in->pos) {
        PyErr_Format(InvalidRecord, "record %lld has %lld headers in %lld bytes", (long long)in->index,
                     (long long)count, (long long)(end - in->pos));
        return false;
    }
    while (count--) {
        if (!read_varint(in, 32, &raw))
            return false;
        if (raw & 1)
            return refuse(in, "record %lld has a header without a key");
        in->pos += raw >> 1;
        if (!read_varint(in, 32, &raw))
            return false;
        if (!(raw & 1)) {
            in->pos += raw >> 1;
        } else if (raw != 1) {
            PyErr_Format(InvalidRecord, "record %lld has a header value of size %lld", (long long)in->index,
                         (long long)unzigzag(raw));
            return false;
        }
    }
    return true;
}

static inline bool check_record(Reader *in, Summary *summary)
{
    uint64_t raw;
    if (!read_varint(in, 32, &raw))
        return false;
    if (raw & 1)
        return refuse(in, "record %lld has a negative size");
    int64_t end = in->pos + (int64_t)(raw >> 1);

    in->pos++; /* the attributes, which have no meaning yet */
    if (!read_varint(in, 64, &raw))
        return false;
    int64_t delta = unzigzag(raw);
    if (!in->index) {
        summary->lowest = summary->highest = delta;
    } else if (delta > summary->highest) {
        summary->highest = delta;
        summary->highest_index = in->index;
    } else if (delta < summary->lowest) {
        summary->lowest = delta;
    }

    if (!read_varint(in, 32, &raw))
        return false;
    if (raw != (uint64_t)in->index << 1) {
        PyErr_Format(InvalidRecord, "record %lld has offset delta %lld", (long long)in->index,
                     (long long)unzigzag(raw));
        return false;
    }

    if (!read_varint(in, 32, &raw))
        return false;
    if (!(raw & 1))
        in->pos += raw >> 1;
    else if (raw == 1)
        summary->null_key = true;
    else
        return refuse(in, "record %lld has a key of negative size");

    if (!read_varint(in, 32, &raw))
        return false;
    if (!(raw & 1))
        in->pos += raw >> 1;
    else if (raw != 1)
        return refuse(in, "record %lld has a value of negative size");

    if (in->pos < in->size && !in->data[in->pos])
        in->pos++; /* no headers */
    else if (!skip_headers(in, end))
        return false;
    return in->pos == end || refuse(in, "record %lld does not fill its size");
}

static bool check_all(Reader *in, long long count, Summary *summary)
{
    for (in->index = 0; in->index < count; in->index++) {
        if (!check_record(in, summary))
            return false;
        if ((in->index & OTHERS_RUN_EVERY) == OTHERS_RUN_EVERY) {
            Py_BEGIN_ALLOW_THREADS
            Py_END_ALLOW_THREADS
        }
    }
    if (in->pos == in->size)
        return true;
    PyErr_Format(InvalidRecord, "%lld bytes after the last of %lld records", (long long)(in->size - in->pos), count);
    return false;
}

static PyObject *check_records(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer buffer;
    long long count;
    if (!PyArg_ParseTuple(arguments, "y*L:check_records", &buffer, &count))
        return NULL;
    Reader in = {buffer.buf, buffer.len, 0, 0};
    Summary summary = {0, 0, 0, false};
    bool is_valid = check_all(&in, count, &summary);
    PyBuffer_Release(&buffer);
    if (!is_valid)
        return NULL;
    return Py_BuildValue("LLLO", (long long)summary.lowest, (long long)summary.highest,
                         (long long)summary.highest_index, summary.null_key ? Py_True : Py_False);
}

#ifdef __x86_64__

static bool has_crc_instruction;

enum { HEADER_BYTES = 61, CRC_FROM = 21, MOST_BYTES = 4096 }; /* for larger ones the CRC library is faster */

static uint64_t big_endian(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    while (bytes--)
        value = value << 8 | *at++;
    return value;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c(const uint8_t *data, int64_t size)
{
    uint64_t crc = 0xFFFFFFFF, word;
    for (; size >= 8; data += 8, size -= 8) {
        memcpy(&word, data, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    while (size--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *data++);
    return (uint32_t)crc ^ 0xFFFFFFFF;
}

/* Return NULL without an error for a batch that is not ordinary. */
static PyObject *describe_plain(const uint8_t *data, int64_t size)
{
    if (!has_crc_instruction || size < HEADER_BYTES || size > MOST_BYTES || data[16] != 2)
        return NULL;
    int64_t base_offset = (int64_t)big_endian(data, 8), base_timestamp = (int64_t)big_endian(data + 27, 8),
            max_timestamp = (int64_t)big_endian(data + 35, 8), producer_id = (int64_t)big_endian(data + 43, 8);
    int32_t length = (int32_t)big_endian(data + 8, 4), last_delta = (int32_t)big_endian(data + 23, 4),
            sequence = (int32_t)big_endian(data + 53, 4), count = (int32_t)big_endian(data + 57, 4);
    int16_t attributes = (int16_t)big_endian(data + 21, 2), epoch = (int16_t)big_endian(data + 51, 2);
    if (base_offset || (int64_t)length + 12 != size || attributes || count <= 0 || last_delta != count - 1)
        return NULL;
    if (producer_id < -1 || (producer_id >= 0 && (epoch < 0 || sequence < 0)))
        return NULL;
    if (crc32c(data + CRC_FROM, size - CRC_FROM) != (uint32_t)big_endian(data + 17, 4))
        return NULL;
    Reader in = {data + HEADER_BYTES, size - HEADER_BYTES, 0, 0};
    Summary summary = {0, 0, 0, false};
    if (!check_all(&in, count, &summary)) {
        PyErr_Clear();
        return NULL;
    }
    int64_t lowest, highest;
    if (__builtin_add_overflow(base_timestamp, summary.lowest, &lowest) ||
        __builtin_add_overflow(base_timestamp, summary.highest, &highest) || highest != max_timestamp || highest < 0)
        return NULL;
    return Py_BuildValue("iiLLOLii", (int)last_delta, (int)count, (long long)lowest, (long long)highest,
                         summary.null_key ? Py_True : Py_False, (long long)producer_id, (int)epoch, (int)sequence);
}

static PyObject *plain_batch(PyObject *Py_UNUSED(module), PyObject *batch)
{
    Py_buffer buffer;
    if (PyObject_GetBuffer(batch, &buffer, PyBUF_SIMPLE))
        return NULL;
    PyObject *found = buffer.readonly ? NULL : describe_plain(buffer.buf, buffer.len);
    PyBuffer_Release(&buffer);
    if (!found && !PyErr_Occurred())
        Py_RETURN_NONE;
    return found;
}

#endif

static PyMethodDef methods[] = {
    {"check_records", check_records, METH_VARARGS, NULL},
#ifdef __x86_64__
    {"plain_batch", plain_batch, METH_O, NULL},
#endif
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "klamm.protocol.records._check",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__check(void)
{
#ifdef __x86_64__
    has_crc_instruction = __builtin_cpu_supports("sse4.2");
#endif
    PyObject *errors = PyImport_ImportModule("klamm.protocol.errors");
    if (!errors)
        return NULL;
    InvalidRecord = PyObject_GetAttrString(errors, "InvalidRecord");
    Py_DECREF(errors);
    return InvalidRecord ? PyModule_Create(&definition) : NULL;
}
