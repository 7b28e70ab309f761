// Right alone, wrong in twos: KafkaJS commits offsets in transactions without the member's generation.
//
// Only a producer with the same transactional id, which is the argument, fences this one. Two instances need two ids, and
// then nothing fences who goes on after the other one has taken over.
import { Kafka, Partitioners } from "kafkajs";

const kafka = new Kafka({
  brokers: [process.env.KAFKA_BOOTSTRAP_SERVERS],
  logLevel: 1,
  retry: { initialRetryTime: 20, maxRetryTime: 50 },  // shortens a trial
});
const consumer = kafka.consumer({
  groupId: "billing",
  sessionTimeout: 6000,  // shortens a trial
  heartbeatInterval: 100,  // shortens a trial
  maxWaitTimeInMs: 100,  // shortens a trial
});
const producer = kafka.producer({
  transactionalId: process.argv[2],
  idempotent: true,
  maxInFlightRequests: 1,
  createPartitioner: Partitioners.DefaultPartitioner,
});

const atOnce = Number(process.argv[3] ?? 4); // orders in a transaction

async function write(topic, partition, orders) {
  const transaction = await producer.transaction();
  const messages = orders.map(({ key, value }) => ({ key, value: `paid: ${value}` }));
  await transaction.send({ topic: "receipts", messages });
  const offset = (BigInt(orders.at(-1).offset) + 1n).toString();
  await transaction.sendOffsets({
    consumerGroupId: "billing",
    topics: [{ topic, partitions: [{ partition, offset }] }],
  });
  await transaction.commit();
}

process.on("SIGTERM", async () => {
  await consumer.disconnect();
  await producer.disconnect();
  process.exit(0);
});
// A consumer that gives up leaves the process as it is: a supervisor would see nothing.
consumer.on(consumer.events.CRASH, () => process.exit(1));
await producer.connect();
// The first transaction gets the epoch that fences the others. Later, a zombie would fence its successor.
await (await producer.transaction()).abort();
await consumer.connect();
await consumer.subscribe({ topics: ["orders"], fromBeginning: true });
await consumer.run({
  autoCommit: false,
  eachBatch: async ({ batch }) => {
    try {
      for (let at = 0; at < batch.messages.length; at += atOnce) {
        await write(batch.topic, batch.partition, batch.messages.slice(at, at + atOnce));
      }
    } catch (error) {
      console.error(error);
      process.exit(1); // a supervisor starts the program again: the next producer ends the transaction
    }
  },
});
