// What Kafka itself does with a batch that a producer sends: the other side of test_validate_kafka.py.
//
// Standard input has cases, big-endian: int32 size of the rest, int16 Produce version, four flags of a byte each
// (compacted, log append time, from a client, target codec or -1 for the producer's), int64 timestamp before and
// after limits, int64 now, int32 max.message.bytes, and the records of the request. Each gets a result on standard
// output with: int16 error code, int32 number of record errors, their int32 indexes, int64 log append time and max
// timestamp, and the int32 size and bytes of what would be written.

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.List;

import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse.RecordError;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

public class BatchOracle {
    static final byte PRODUCER = -1;

    static class Case {
        final short version;
        final boolean compacted;
        final boolean logAppendTime;
        final boolean client;
        final byte codec;
        final long before;
        final long after;
        final long now;
        final int maxMessageBytes;
        final MemoryRecords records;

        Case(ByteBuffer in) {
            version = in.getShort();
            compacted = in.get() != 0;
            logAppendTime = in.get() != 0;
            client = in.get() != 0;
            codec = in.get();
            before = in.getLong();
            after = in.getLong();
            now = in.getLong();
            maxMessageBytes = in.getInt();
            records = MemoryRecords.readableRecords(in.slice());
        }

        LogValidator.ValidationResult validate() {
            if (client)
                ProduceRequest.validateRecords(version, records);
            // What stands before and after the validator is private in UnifiedLog; these are its calls, in its order.
            CompressionType source = CompressionType.NONE;
            int validBytes = 0;
            for (MutableRecordBatch batch : records.batches()) {
                if (client && batch.baseOffset() != 0)
                    throw new InvalidRecordException("base offset");
                batch.lastOffset();
                if (batch.sizeInBytes() > maxMessageBytes)
                    throw new RecordTooLargeException("size");
                if (!batch.isValid())
                    throw new CorruptRecordException("crc");
                validBytes += batch.sizeInBytes();
                CompressionType found = CompressionType.forId(batch.compressionType().id);
                if (found != CompressionType.NONE)
                    source = found;
            }
            ByteBuffer valid = records.buffer().duplicate();
            valid.limit(validBytes);
            Compression target = Compression.of(codec == PRODUCER ? source : CompressionType.forId(codec)).build();
            LogValidator validator = new LogValidator(
                MemoryRecords.readableRecords(valid), new TopicPartition("t", 0), clock(now), source, target,
                compacted, (byte) 2, logAppendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
                before, after, 0, client ? AppendOrigin.CLIENT : AppendOrigin.COORDINATOR);
            LogValidator.ValidationResult result =
                validator.validateMessagesAndAssignOffsets(PrimitiveRef.ofLong(0), METRICS, BufferSupplier.NO_CACHING);
            if (result.messageSizeMaybeChanged() && result.validatedRecords().sizeInBytes() > maxMessageBytes)
                throw new RecordTooLargeException("size after it");
            return result;
        }
    }

    static final LogValidator.MetricsRecorder METRICS = (LogValidator.MetricsRecorder) Proxy.newProxyInstance(
        BatchOracle.class.getClassLoader(), new Class<?>[] {LogValidator.MetricsRecorder.class}, (p, m, a) -> null);

    static Time clock(long now) {
        return (Time) Proxy.newProxyInstance(
            BatchOracle.class.getClassLoader(), new Class<?>[] {Time.class}, (p, m, a) -> now);
    }

    static void respond(DataOutputStream out, Errors error, List<RecordError> errors) throws IOException {
        out.writeShort(error.code());
        out.writeInt(errors.size());
        for (RecordError one : errors)
            out.writeInt(one.batchIndex);
    }

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 20));
        while (true) {
            byte[] body;
            try {
                body = new byte[in.readInt()];
            } catch (EOFException end) {
                break;
            }
            in.readFully(body);
            LogValidator.ValidationResult result = null;
            try {
                result = new Case(ByteBuffer.wrap(body)).validate();
                respond(out, Errors.NONE, List.of());
            } catch (RecordValidationException e) {
                respond(out, Errors.forException(e.invalidException()), e.recordErrors());
            } catch (Throwable e) {
                respond(out, Errors.forException(e), List.of());
            }
            ByteBuffer written = result == null ? ByteBuffer.allocate(0) : result.validatedRecords().buffer();
            out.writeLong(result == null ? -1 : result.logAppendTimeMs());
            out.writeLong(result == null ? -1 : result.maxTimestampMs());
            byte[] bytes = new byte[written.remaining()];
            written.duplicate().get(bytes);
            out.writeInt(bytes.length);
            out.write(bytes);
        }
        out.flush();
    }
}
